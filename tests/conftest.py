"""Fixtures that several folders of tests share live in the modules named here."""

from hypothesis import settings

settings.register_profile("mycroft", deadline=None)  # a loaded machine is no failure
settings.load_profile("mycroft")

pytest_plugins = [
    "tests.lanes",
    "tests.figures",
    "tests.collector_files",
    "tests.integration.kafka_fixtures",
    "tests.integration.store_fixtures",
    "tests.integration.pipeline",
    "tests.integration.lived_store",
    "tests.integration.browser",
    "tests.integration.alertmanager",
]
