"""The sink: every topic into ClickHouse, each message once.

`rows` says which rows a message becomes, `ranges` which messages are stored together so that a restart
repeats nothing, `store` what ClickHouse's errors mean, `loop` carries data between them.
"""
