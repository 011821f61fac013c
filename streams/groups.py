"""What the broker says about consumer groups."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from streams.kafka import ANSWER_TIMEOUT_S, BrokerRefused, admin, error_of, metadata


def member_hosts(bootstrap: str, group: str) -> set[str]:
    """Addresses of the members that the broker holds for alive in a group, empty where there is none.

    Blocks for some seconds at most. Raises BrokerUnreachable and BrokerRefused.
    """
    client = admin(bootstrap, "groups")
    metadata(client, bootstrap)
    asked = client.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)
    try:
        return {member.host.lstrip("/") for member in asked[group].result().members}
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return set()
        if error.code() == KafkaError._UNSUPPORTED_FEATURE:
            raise BrokerRefused(
                f"the broker at {bootstrap} describes no groups, as that of mycroft up: see its logs instead"
            ) from exception
        raise BrokerRefused(
            f"group {group} at {bootstrap} cannot be described: {error.name()}"
        ) from exception
