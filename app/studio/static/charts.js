// The page of charts: zooms the drawing.

import { ChartZoom } from "/static/chart_zoom.js";
import { offerKeys } from "/static/keys.js";

const ZOOM = 1.2;
const chart = new ChartZoom(document.getElementById("diagram"), document.getElementById("percent"));
const edit = document.getElementById("edit");

offerKeys([
  [["+", "="], "make the chart larger", () => chart.zoom(ZOOM), { repeats: true }],
  [["-"], "make the chart smaller", () => chart.zoom(1 / ZOOM), { repeats: true }],
  [["0"], "fit the chart", () => chart.fit()],
  ...(edit ? [[["e"], "edit it", () => edit.click()]] : []),
], "Zoom the chart with Ctrl and the wheel too, and drag it.");
