"""From journals to lake tables to statistics: the recorder, the Spark jobs and the questions one can ask of them.

Its names are looked up when they are asked for, so that a command which needs no Spark does not load it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metromq.pipeline.class_archive import make_archive_soon, make_class_archive
    from metromq.pipeline.content import Content, repair
    from metromq.pipeline.counting import CHOICES
    from metromq.pipeline.ingest import Taken
    from metromq.pipeline.jobs import IngestOptions, lake_lock, run
    from metromq.pipeline.journals import named_journals, noted_journals
    from metromq.pipeline.lake import Lake
    from metromq.pipeline.landing import Landing
    from metromq.pipeline.maintain import BrokerCheck, ask, check, compact, expire, lake_or_usage_error, tables
    from metromq.pipeline.models import read_models
    from metromq.pipeline.own_tables import refresh_own
    from metromq.pipeline.patience import keep_running
    from metromq.pipeline.plain_sql import NotPlain
    from metromq.pipeline.progress import Progress, serve_metrics
    from metromq.pipeline.quick import ask_quickly
    from metromq.pipeline.reclustering import Proposal, propose_clusters, read_proposal, save_proposal
    from metromq.pipeline.recommending import Recommendation, recommend
    from metromq.pipeline.recorder import Recorder, recorder_lock
    from metromq.pipeline.refreshing import refresh
    from metromq.pipeline.shipper import shipping
    from metromq.pipeline.spark import register
    from metromq.pipeline.whatif import ChoiceCost, SiteCost, check_choices, recorded_days, what_if

_HOMES = {
    "BrokerCheck": "maintain",
    "CHOICES": "counting",
    "ChoiceCost": "whatif",
    "Content": "content",
    "IngestOptions": "jobs",
    "Lake": "lake",
    "Landing": "landing",
    "NotPlain": "plain_sql",
    "Progress": "progress",
    "Proposal": "reclustering",
    "Recommendation": "recommending",
    "Recorder": "recorder",
    "SiteCost": "whatif",
    "Taken": "ingest",
    "ask": "maintain",
    "ask_quickly": "quick",
    "check": "maintain",
    "check_choices": "whatif",
    "compact": "maintain",
    "expire": "maintain",
    "keep_running": "patience",
    "lake_lock": "jobs",
    "lake_or_usage_error": "maintain",
    "make_archive_soon": "class_archive",
    "make_class_archive": "class_archive",
    "named_journals": "journals",
    "noted_journals": "journals",
    "propose_clusters": "reclustering",
    "read_models": "models",
    "read_proposal": "reclustering",
    "recommend": "recommending",
    "recorded_days": "whatif",
    "recorder_lock": "recorder",
    "refresh": "refreshing",
    "refresh_own": "own_tables",
    "register": "spark",
    "repair": "content",
    "run": "jobs",
    "save_proposal": "reclustering",
    "serve_metrics": "progress",
    "shipping": "shipper",
    "tables": "maintain",
    "what_if": "whatif",
}


def __getattr__(name: str) -> Any:
    """Opens a module when one of its names is asked for: what some of them need is optional, and slow to load."""
    if name not in _HOMES:
        raise AttributeError(f"{__name__} offers no {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "CHOICES",
    "BrokerCheck",
    "ChoiceCost",
    "Content",
    "IngestOptions",
    "Lake",
    "Landing",
    "NotPlain",
    "Progress",
    "Proposal",
    "Recommendation",
    "Recorder",
    "SiteCost",
    "Taken",
    "ask",
    "ask_quickly",
    "check",
    "check_choices",
    "compact",
    "expire",
    "keep_running",
    "lake_lock",
    "lake_or_usage_error",
    "make_archive_soon",
    "make_class_archive",
    "named_journals",
    "noted_journals",
    "propose_clusters",
    "read_models",
    "read_proposal",
    "recommend",
    "recorded_days",
    "recorder_lock",
    "refresh",
    "refresh_own",
    "register",
    "repair",
    "run",
    "save_proposal",
    "serve_metrics",
    "shipping",
    "spark",
    "tables",
    "what_if",
]
