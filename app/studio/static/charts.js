// The page of charts: zooms the drawing.

import { ChartZoom } from "/static/chart_zoom.js";
import { Keys, openDialog } from "/static/run_keys.js";

const ZOOM = 1.2;
const chart = new ChartZoom(document.getElementById("diagram"), document.getElementById("percent"));
const edit = document.getElementById("edit");

new Keys([
  [["+", "="], "make the chart larger", () => chart.zoom(ZOOM)],
  [["-"], "make the chart smaller", () => chart.zoom(1 / ZOOM)],
  [["0"], "fit the chart", () => chart.fit()],
  ...(edit ? [[["e"], "edit it", () => edit.click()]] : []),
  [["?"], "these keys", () => openDialog("keys")],
]);
