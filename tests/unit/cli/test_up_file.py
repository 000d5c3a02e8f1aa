"""`up.toml`: what `scopekv up` leaves in the data directory while it runs."""

from __future__ import annotations

from pathlib import Path

from scopekv.cli.up import UP_FILE, described
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import read_settings

ENGINES = (
    InstanceAddress("engine-0", "http://127.0.0.1:4001", 'a "key" \\ of its own'),
    InstanceAddress("engine-1", "http://127.0.0.1:4002", "k"),
)
REGISTRY = "postgresql://scopekv@db/scopekv"


def test_it_is_a_gateways_file_for_its_owner_alone_and_goes_with_the_deployment(
    tmp_path: Path,
) -> None:
    path = tmp_path / UP_FILE
    path.write_text("left by a killed one")
    path.chmod(0o644)
    with described(tmp_path, GatewaySettings(ENGINES, host="::1", port=8123, registry=REGISTRY)):
        assert path.stat().st_mode & 0o777 == 0o600
        found = read_settings(path)
    assert (found.host, found.port, found.instances) == ("::1", 8123, ENGINES)
    assert found.registry == REGISTRY
    assert not path.exists()
