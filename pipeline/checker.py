"""Symbolic checks over findings: dependency cycles and resource overlaps (paper, A.9)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import networkx as nx

from operators.claims import Finding, FindingType

_CONSTRAINT = re.compile(r"resource:(\S+)\s+time:(\d+)-(\d+)")
_DEPENDENCY = re.compile(r"^\s*(?P<needs>.+?)\s*->\s*(?P<needed>.+?)\s*$")


class ViolationKind(StrEnum):
    CYCLE = "dependency-cycle"
    OVERLAP = "resource-overlap"


@dataclass(frozen=True, slots=True)
class Violation:
    """One mechanical conflict: what it is about and every finding that takes part."""

    kind: ViolationKind
    subject: str
    finding_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The violations, and how much was looked at: a check that saw nothing is no all-clear."""

    violations: tuple[Violation, ...]
    edges: int
    intervals: int


def check(findings: Iterable[Finding]) -> CheckReport:
    """Every dependency cycle (one violation a strongly connected component) and every contended resource.

    Overlaps are grouped per resource. Intervals [s1, e1) and [s2, e2) collide when s1 < e2 and s2 < e1, so
    adjacent ones do not; an interval that ends where or before it starts is empty and collides with nothing.
    """
    by_type: dict[FindingType, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_type[finding.type].append(finding)
    graph = _dependency_graph(by_type[FindingType.DEPENDENCY])
    booked = _bookings(by_type[FindingType.CONSTRAINT])
    return CheckReport(
        violations=(*_cycles(graph), *_overlaps(booked)),
        edges=graph.number_of_edges(),
        intervals=sum(map(len, booked.values())),
    )


def _dependency_graph(findings: Iterable[Finding]) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for finding in findings:
        match = _DEPENDENCY.match(finding.text)
        if match:
            needs, needed = match["needs"], match["needed"]
            if not graph.has_edge(needs, needed):
                graph.add_edge(needs, needed, ids=[])
            graph.edges[needs, needed]["ids"].append(finding.finding_id)
    return graph


def _cycles(graph: nx.DiGraph[str]) -> list[Violation]:
    found = []
    for component in nx.strongly_connected_components(graph):
        inner = [(a, b) for a, b in graph.edges(component) if a in component and b in component]
        if not inner:  # a single node without an edge to itself
            continue
        ids = sorted({i for a, b in inner for i in graph.edges[a, b]["ids"]})
        found.append(Violation(ViolationKind.CYCLE, ", ".join(sorted(component)), tuple(ids)))
    return sorted(found, key=lambda violation: violation.subject)


def _bookings(findings: Iterable[Finding]) -> dict[str, list[tuple[int, int, str]]]:
    booked: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for finding in findings:
        for resource, start, end in _CONSTRAINT.findall(finding.text):
            if int(start) < int(end):
                booked[resource].append((int(start), int(end), finding.finding_id))
    return booked


def _overlaps(booked: dict[str, list[tuple[int, int, str]]]) -> list[Violation]:
    """Sweep each resource by start: an interval collides with an earlier one that still runs."""
    found = []
    for resource, intervals in sorted(booked.items()):
        colliding: set[str] = set()
        running_end, running_id = -1, ""
        for start, end, finding_id in sorted(intervals):
            if start < running_end:
                colliding |= {running_id, finding_id}
            if end > running_end:
                running_end, running_id = end, finding_id
        if len(colliding) > 1:
            found.append(Violation(ViolationKind.OVERLAP, resource, tuple(sorted(colliding))))
    return found
