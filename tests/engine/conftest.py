"""`python -m pytest tests/engine`: real vLLM, on the CPU. `--everything` is the long run."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import environments
import jobs
import rehearsals
import report
import zoo_jobs
from laboratory import Laboratory

JOBS = {
    "life": jobs.life,
    "half_open": jobs.half_open,
    "one_closed": jobs.one_closed,
    "compiled": jobs.compiled,
    "mutated": jobs.mutated,
    "zoo_life": zoo_jobs.zoo_life,
    "naive": zoo_jobs.naive,
    "rehearsed": rehearsals.rehearse,
}
SUBJECTS = {  # or the version
    "mutated": "mutation",
    "zoo_life": "part",
    "naive": "mistake",
    "rehearsed": "rehearsal",
}


def pytest_addoption(parser):
    parser.addoption("--everything", action="store_true", help="more versions, compile on each")


def pytest_generate_tests(metafunc):
    everything = metafunc.config.getoption("everything")
    patched = sorted((*jobs.PATCHED, *jobs.MORE_PATCHED)) if everything else jobs.PATCHED
    speculating = [
        (version, scenario["name"])
        for version in (*patched, *jobs.NATIVE)
        for scenario in jobs.speculating(version)
    ]
    extracting = [
        (version, scenario["name"]) for version in patched for scenario in jobs.extracting(version)
    ]
    parts = zoo_jobs.parts(everything)
    zoo = [(part, name) for part, names in parts.items() for name in names]
    choices = {
        "zoo": (("part", "architecture"), zoo),
        "zoo parts": ("part", tuple(parts)),
        "patched": ("version", patched),
        "native": ("version", jobs.NATIVE),
        "any": ("version", (*patched, *jobs.NATIVE)),
        "compiled": ("version", patched if everything else (jobs.MUTATED,)),
        "speculating": (("version", "scenario"), speculating),
        "extracting": (("version", "scenario"), extracting),
    }
    marker = metafunc.definition.get_closest_marker("rehearsals")
    if marker:
        names = rehearsals.names(marker.args[0], everything=everything)
        metafunc.parametrize("rehearsal", names)
    marker = metafunc.definition.get_closest_marker("versions")
    if marker:
        names, values = choices[marker.args[0]]
        metafunc.parametrize(names, values)


def pytest_collection_modifyitems(config, items):
    """The long run's own tests are left out of the short one, not skipped in it."""
    if not config.getoption("everything"):
        items[:] = [i for i in items if i.get_closest_marker("long") is None]


def pytest_configure(config):
    config.addinivalue_line("markers", "versions(which): the versions that the test runs for")
    config.addinivalue_line("markers", "rehearsals(which): the rehearsals that the test is for")
    config.addinivalue_line("markers", "long: only in the long run")


@pytest.fixture(scope="session")
def lab(request):
    """All that the collected tests need is started at once, in their order, two at a time."""
    environments.cache().mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=environments.cache(), prefix="run-"))
    laboratory = Laboratory(folder)
    for item in request.session.items:
        for fixture in (name for name in JOBS if name in item.fixturenames):
            laboratory.start(_job(fixture, item.callspec.params), JOBS[fixture])
    yield laboratory
    laboratory.close()
    _keep_results(request.session, laboratory)
    shutil.rmtree(folder)


def _job(fixture, params):
    return fixture, params[SUBJECTS.get(fixture, "version")]


def _keep_results(session, laboratory):
    """For the report; a run of a part, or one in which a test failed, has nothing to report."""
    kept = environments.cache() / "results.json"
    if session.testsfailed:
        kept.unlink(missing_ok=True)
    elif not session.config.option.keyword:
        results = {" ".join(name): laboratory.result(name) for name in laboratory.jobs}
        found = {"tests": session.testscollected, "results": results}
        kept.write_text(json.dumps(found))
        session.config.proof = report.text(found)


def pytest_terminal_summary(terminalreporter, config):
    """The tables, above pytest's closing line."""
    if hasattr(config, "proof"):
        terminalreporter.write_line(config.proof)


def _fixture(name):
    @pytest.fixture(name=name)
    def result(request, lab):
        return lab.result(_job(name, request.node.callspec.params))

    return result


for _name in JOBS:
    globals()[f"_{_name}"] = _fixture(_name)
