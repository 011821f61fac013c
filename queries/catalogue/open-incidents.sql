-- title: Open incidents
-- answers: What is wrong right now, the loudest and oldest first.
-- parameter: job String = '' | only of this job; empty for all
-- worked result:
--   id               | severity | category    | confidence | job  | waiting | hosts      | minutes | summary
--   0c255f623d6f75a1 | warning  | link        | likely     | demo | 4       | ['host-1'] | 2.0     | The link …
SELECT
    id,
    severity,
    category,
    confidence,
    job,
    waiting,
    hosts,
    round(dateDiff('second', detected, now64(6, 'UTC')) / 60, 1) AS minutes,
    summary
FROM nccl.incidents FINAL
WHERE state = 'open' AND ({job:String} = '' OR job = {job:String})
ORDER BY indexOf(['critical', 'warning', 'notice'], severity), detected, id
