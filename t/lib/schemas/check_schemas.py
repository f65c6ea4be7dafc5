# check_schemas.py
#   What pg_audit_trail prints in a format of a published schema, against the facts of
#   that schema.
#
#   check_schemas.py SCHEMA FILE
#
# SCHEMA is ocsf.json or ecs.json; the lines are in FILE.  Prints a JSON object:
#
#   lines     number of lines
#   errors    what is wrong with them, the first few
#   accepted  documents that were broken on purpose, and are valid all the same
#   broken    how many of these there were
#   flat      each line with the objects in it flat: "a.b.c" -> value
#
# Copyright (c) 2026, pg_audit_queue contributors

import copy
import ipaddress
import json
import os
import sys

import jsonschema

MOST = 10
FORMATS = jsonschema.FormatChecker(formats=[])


@FORMATS.checks("ip", raises=ValueError)
def is_ip(text):
    return bool(ipaddress.ip_address(text))


def no_duplicates(pairs):
    """A name that is twice in an object is valid JSON, and loses one of the values."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a name is there twice: {names}")
    return dict(pairs)


def flatten(value, path=""):
    if isinstance(value, dict) and value and not path.endswith(".settings"):
        return {key: leaf for name, inner in value.items()
                for key, leaf in flatten(inner, f"{path}.{name}" if path else name).items()}
    return {path: value}


class Ocsf:
    def __init__(self, schema):
        self.validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)

    def errors(self, document):
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
                for error in self.validator.iter_errors(document)]

    def broken(self, document):
        """Without what is required; other captions and numbers; names that are not there."""
        required = ["activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time",
                    "type_uid", "metadata.version", "metadata.product", "metadata.product.name"]
        if document["class_uid"] == 6005:
            required += ["actor", "src_endpoint", "database.type_id", "database.name"]
            required += ["query_info.query_string"] if "query_info" in document else []
        else:
            required += ["user", "user.name"]
        for path in required:
            yield f"without {path}", changed(document, path, None)
        for path, values in {
                "activity_id": [11, 98, "1"], "activity_name": [7], "category_uid": [0, 5],
                "class_uid": [0, 6001], "class_name": ["x"], "type_uid": [0, 600598],
                "type_name": ["x"], "severity_id": [7, 1.5], "severity": ["Bad"],
                "status_id": [3, 98], "status": ["Fine"], "time": ["2026-11-20", 1.5],
                "time_dt": ["2026-11-20"], "metadata.version": ["1.7", 1], "duration": ["1"],
                "timezone_offset": [1081], "src_endpoint": [{}, {"port": 1}, {"ip": "x.y"}],
                "src_endpoint.port": [65536, "80"], "actor": [{}], "database": [{"type_id": 1}],
                "somethingNew": [1], "actor.nickname": ["x"], "query_info": [{"query_string": "x"}],
                "user": [{}], "is_remote": ["yes"]}.items():
            for value in values:
                yield f"{path} is {value!r}", changed(document, path, value)
        if document["class_uid"] == 6005:
            both = changed(changed(document, "database", None), "table", None)
            yield "neither database nor table", both
        else:
            both = changed(changed(document, "service", None), "dst_endpoint", None)
            yield "neither service nor destination", both


class Ecs:
    def __init__(self, schema):
        self.expected = schema["expected_types"]
        self.validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)

    def errors(self, document):
        flat = flatten(document)
        found = [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
                 for error in self.validator.iter_errors(flat)]
        categories = flat.get("event.category") or []
        types = flat.get("event.type") or []
        for category in categories:
            if not set(types) & set(self.expected.get(category, [])):
                found.append(f"no type of {types} goes with category {category}")
        for event_type in types:
            if not any(event_type in self.expected.get(category, []) for category in categories):
                found.append(f"type {event_type} goes with no category of {categories}")
        return found

    def broken(self, document):
        for path in ("@timestamp", "ecs.version", "event.kind", "event.category", "event.type"):
            yield f"without {path}", changed(document, path, None)
        for path, values in {
                "@timestamp": ["2026-11-20 10:11:12", 1], "ecs.version": ["8.17"],
                "event.kind": ["events", "signal"], "event.category": ["database", ["files"], []],
                "event.type": ["change", ["read"], ["indicator"], []],
                "event.outcome": ["ok", "Success"], "event.duration": ["1", 1.5],
                "event.sequence": ["1"], "event.code": [0], "event.start": ["yesterday"],
                "event.severe": [1], "source.ip": ["[local]", "fe80::1%eth0", ""],
                "source.port": ["80"], "process.pid": ["1"], "network.transport": ["TCP"],
                "related.user": ["x", ["x", "x"]], "postgresql.log": ["x"], "somethingNew": ["x"],
                "user.effective.name": [["x"]]}.items():
            for value in values:
                yield f"{path} is {value!r}", changed(document, path, value)


def changed(document, path, value):
    """A copy with another value at the path; None: without it."""
    result = copy.deepcopy(document)
    inner = result
    *parents, name = path.split(".")
    for parent in parents:
        inner = inner.setdefault(parent, {})
    if value is None:
        inner.pop(name, None)
    else:
        inner[name] = value
    return result


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = (Ocsf if os.path.basename(sys.argv[1]) == "ocsf.json" else Ecs)(schema)
    with open(sys.argv[2], encoding="utf-8", newline="\n") as file:
        documents = [json.loads(line, object_pairs_hook=no_duplicates) for line in file]

    errors = [f"line {number}: {error}" for number, document in enumerate(documents, 1)
              for error in checker.errors(document)]
    # one of each kind is enough
    samples = {(document.get("type_uid"), str(document.get("event", {}).get("type")),
                "query_info" in document): document for document in documents}
    broken = [(word, document) for sample in samples.values()
              for word, document in checker.broken(sample)]
    accepted = [word for word, document in broken if not checker.errors(document)]
    json.dump({
        "lines": len(documents),
        "errors": errors[:MOST],
        "accepted": accepted[:MOST],
        "broken": len(broken),
        "flat": [flatten(document) for document in documents],
    }, sys.stdout)


if __name__ == "__main__":
    main()
