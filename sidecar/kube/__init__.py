"""How this project asks the API server: client, informer and writes. It knows no LoRA.

lean         the parts of kubernetes_asyncio that are used, without the other 1,500 modules
errors       KubeError, named by what the caller does next
credentials  where the API server is and who we are to it
client       requests and streams
informer     list + watch; with `store` what it knows, `selectors` what it asks for, `backoff` when to ask again
apply        writes, silent where nothing differs
"""
