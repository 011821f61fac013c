-- title: History of a host
-- answers: Whether this host has been named before: every incident in which one of its ranks is a culprit or a candidate.
-- parameter: host String | the host, as the collector names it
-- parameter: days UInt32 = 30 | so far back
-- worked result:
--   detected            | id               | state  | category | confidence | job  | named_as | ranks | others     | summary
--   2026-03-01 03:12:09 | 0c255f623d6f75a1 | closed | link     | likely     | demo | culprit  | [2,3] | ['host-2'] | The link …
WITH
    JSONExtract(incident, 'culprits', 'Array(Tuple(rank Nullable(Int32), host Nullable(String)))') AS accused,
    JSONExtract(incident, 'candidates', 'Array(Tuple(rank Nullable(Int32), host Nullable(String)))') AS offered,
    arrayExists(node -> node.host = {host:String}, accused) AS guilty
SELECT
    toDateTime(detected, 'UTC') AS detected,
    id,
    state,
    category,
    confidence,
    job,
    if(guilty, 'culprit', 'candidate') AS named_as,
    arrayMap(node -> node.rank, arrayFilter(node -> node.host = {host:String}, if(guilty, accused, offered))) AS ranks,
    arrayFilter(each -> each != {host:String}, hosts) AS others,
    summary
FROM nccl.incidents FINAL
WHERE has(hosts, {host:String}) AND detected >= now() - toIntervalDay({days:UInt32})
ORDER BY detected DESC, id
