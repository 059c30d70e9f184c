"""The typed face of `ytsaurus-client`: the only package that imports it.

Everything here raises errors of `yt_exactly_once.errors` only. Retries of the client are switched
off inside transactions, where a silent repeat would be wrong.
"""
