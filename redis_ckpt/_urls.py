"""URLs: which server, cluster or service of Sentinel is meant, in the form that redis-py takes."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

CLUSTER_PORT, SENTINEL_PORT = 6379, 26379
SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
    "embedded",
)

UNREADABLE = "host and port of redis_url cannot be read: in a password write / as %2F, # as %23, ? as %3F, @ as %40"


class Address(NamedTuple):
    """What a URL names."""

    kind: Literal["server", "cluster", "sentinel", "embedded"]
    url: str  # as redis-py takes it: of one server, with the credentials and options of the whole
    hosts: tuple[tuple[str, int], ...] = ()  # nodes of a cluster, or sentinels
    service: str = ""

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.url.startswith("rediss://")


def address_of(redis_url: object) -> Address:
    """Read a URL.

    Raises:
        ValueError: It cannot be understood. The message quotes no more than the scheme: the rest may hold a password.
    """
    scheme, found, rest = redis_url.partition("://") if isinstance(redis_url, str) else ("", "", "")
    if not found or scheme not in SCHEMES:
        what = f"its scheme is {scheme[:20]!r}" if found else "it has no scheme"
        raise ValueError(f"redis_url must begin with one of {', '.join(s + '://' for s in SCHEMES)}; {what}")
    server, _, topology = scheme.partition("+")
    if scheme == "embedded":
        return Address("embedded", f"{scheme}://{rest}")
    if not topology:
        _port_of(f"{scheme}://{rest}")
        return Address("server", f"{scheme}://{rest}")
    at = min((i for mark in "/?#" if (i := rest.find(mark)) >= 0), default=len(rest))
    credentials, has_credentials, hosts_text = rest[:at].rpartition("@")
    path, _, query = rest[at:].partition("?")
    parts = [unquote(part) for part in path.split("/")[1:]] if path else []
    if topology == "cluster":
        hosts = _hosts(hosts_text, CLUSTER_PORT)
        if parts not in ([], [""], ["0"]):
            raise ValueError("a cluster has one database: leave it out of redis_url, or write /0")
        service, db = "", "0"
    else:
        hosts = _hosts(hosts_text, SENTINEL_PORT)
        service, db = [*parts, *["", ""][len(parts) :]][:2]
        if not service or len(parts) > 2 or not (db == "" or db.isdecimal()):
            raise ValueError("redis_url must name a service of Sentinel: redis+sentinel://host:port,.../service[/db]")
    (host, port), *_ = hosts
    netloc = f"{credentials}{has_credentials}{f'[{host}]' if ':' in host else host}:{port}"
    url = f"{server}://{netloc}/{db or 0}" + (f"?{query}" if query else "")
    return Address("cluster" if topology == "cluster" else "sentinel", url, tuple(hosts), service)


def _hosts(text: str, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for each in text.split(","):
        host, port = urlsplit(f"//{each}").hostname, _port_of(f"//{each}")
        if not host:
            raise ValueError("redis_url names no host, or an empty one: host:port,host:port")
        hosts.append((host, port or default_port))
    return hosts


def _port_of(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        raise ValueError(UNREADABLE) from None  # the error quotes what may be a password
