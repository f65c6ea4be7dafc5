# config.py
#   The configurations that are compared: who audits, how, and where to.
#
# A configuration is a set of server settings, and what is known about the trail
# that they make.  A configuration whose library is not installed is left out.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os

from cluster import AUDIT_DB, LINE_PREFIX

# What is written in a row, by the title of the process that writes it
WRITERS = {
    "postgres: pg_audit_queue worker": "worker",
    "postgres: pg_audit_queue loader": "loader",
    "postgres: logger": "logger",
}

COLLECTOR = {"logging_collector": "on", "log_directory": "log"}


class Configuration:
    """One configuration.

    layout  what the trail looks like, one of trail.py's; None: there is none
    folder  where it is, in the data directory; None: in the table
    nothing it leaves no record of what pgbench does
    layered files of the trail are compressed, encrypted or sealed, or may be
    missing why it cannot be had, whatever is installed
    """

    layered = False
    missing = None

    def __init__(self, name, libraries, settings, layout=None, folder=None, nothing=False):
        self.name = name
        self.libraries = libraries
        self.own_settings = settings
        self.layout = layout
        self.folder = folder
        self.nothing = nothing

    @property
    def ours(self):
        return "pg_audit_queue" in self.libraries

    @property
    def table(self):
        return self.layout == "table"

    @property
    def sealed(self):
        return self.own_settings.get("pg_audit_queue.seal") == "on"

    @property
    def ending(self):
        """What layers add to the names of files"""
        names = {"zstd": ".zst", "lz4": ".lz4"}
        compression = self.own_settings.get("pg_audit_queue.log_compression", "none")
        encryption = self.own_settings.get("pg_audit_queue.log_encryption", "none")
        return names.get(compression, "") + ("" if encryption == "none" else ".enc")

    def settings(self):
        return {"shared_preload_libraries": ",".join(self.libraries), **self.own_settings}

    def variant(self, name, settings, **changes):
        """The same, but for these settings."""
        other = Configuration(name, self.libraries, {**self.own_settings, **settings},
                              self.layout, self.folder, self.nothing)
        other.layered = self.layered
        for attribute, value in changes.items():
            setattr(other, attribute, value)
        return other

    def absent(self, pkglibdir):
        """Why it cannot be had; None if it can."""
        if self.missing:
            return self.missing
        for library in self.libraries:
            if not os.path.exists(os.path.join(pkglibdir, library + ".so")):
                return f"{library} is not installed for this server"
        return None

    def describe(self):
        return {"settings": self.settings()}


def _ours(mode, trail_format):
    return Configuration(mode, ["pg_audit_queue"], {
        "pg_audit_queue.log": "all",
        "pg_audit_queue.mode": mode,
        "pg_audit_queue.format": trail_format,
        "pg_audit_queue.log_line_prefix": LINE_PREFIX,
    }, layout=trail_format, folder="audit")


def in_table(configuration, **table):
    """It, with its trail in the table; table_... settings without that prefix."""
    settings = {"pg_audit_queue.sink": "table", "pg_audit_queue.database": AUDIT_DB}
    settings.update((f"pg_audit_queue.table_{name}", value) for name, value in table.items())
    words = [configuration.name, "table"] + [
        ("logged" if value == "on" else "unlogged") if name == "logged" else f"sync_{value}"
        for name, value in table.items()]
    return configuration.variant("_".join(words), settings, layout="table", folder=None)


def standard(trail_format):
    """The configurations that several commands have, by name."""
    queued, commit, immediate = (
        _ours(mode, trail_format) for mode in ("queued", "commit", "immediate"))
    everything = [
        Configuration("none", [], {}),
        Configuration("pgaudit", ["pgaudit"], {"pgaudit.log": "all", **COLLECTOR},
                      layout="pgaudit", folder="log"),
        Configuration("pgaudit_tofile", ["pgaudit", "pgauditlogtofile"],
                      {"pgaudit.log": "all", "pgaudit.log_directory": "audit", **COLLECTOR},
                      layout="tofile", folder="audit"),
        Configuration("log_statement", [], {"log_statement": "all", **COLLECTOR},
                      layout="statements", folder="log"),
        queued, commit, immediate, in_table(queued), in_table(immediate),
        commit.variant("commit_wal", {"pg_audit_queue.commit_wal": "on"}),
        queued.variant("queued_no_nulls", {"pg_audit_queue.json_nulls": "off"}),
        queued.variant("loaded", {"pg_audit_queue.log": "none"}, nothing=True),
        queued.variant("ddl_role", {"pg_audit_queue.log": "ddl,role"}, nothing=True),
    ]
    return {configuration.name: configuration for configuration in everything}
