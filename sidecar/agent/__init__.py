"""The agent: in one SGLang pod, makes the LoRAAdapters that target it true, and reports.

One loop: gather, plan, act, report. `plan` and `report` are pure; `loop` moves values between the world and them.
"""
