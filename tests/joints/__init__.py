"""Where two rooms meet in production: everything real, and an observer who knows only what clients sent and got."""
