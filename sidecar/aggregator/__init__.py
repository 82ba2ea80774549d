"""The aggregator: folds the reports of all pods into the status of each LoRAAdapter.

reading   objects of the API server in, `records` out: small frozen values; garbage becomes a value that says so
view      the pods of one service, each judged once for all its adapters
judge     one adapter on one of these pods
fold      one adapter on all of them: its status, in `words`
pacing    when a status that differs is written
index     what belongs together, and which adapters a change concerns; fed by `sources`
loop      waits, folds what is due, writes what differs through `writing`
"""
