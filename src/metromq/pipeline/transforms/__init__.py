"""DataFrame in, DataFrame out: every statistic of the lake; each has a twin in plain Python in the tests."""
