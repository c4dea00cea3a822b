"""Charts that people write in the browser: checked in bounded workers, saved to files of the operator."""
