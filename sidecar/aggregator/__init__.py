"""The aggregator: folds the reports of all pods into the status of each LoRAAdapter.

records  what is read of each object: small frozen values; garbage becomes a value that says so
view     the pods of one service, each judged once for all its adapters
fold     one adapter and that view -> its status
words    the messages of a status
pacing   when a status that differs is written
index    what belongs together, and which adapters a change concerns
loop     waits, folds what is due, writes what differs
"""
