"""The lab: the papers' experiments, with the published numbers beside ours."""
