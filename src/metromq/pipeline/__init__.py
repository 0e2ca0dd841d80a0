"""From journals to lake tables to statistics: the recorder, the Spark jobs and the questions one can ask of them.

Nothing here is imported by the broker but `telemetry` and, when recording is on, `recorder`; Spark is imported by no one else.
"""
