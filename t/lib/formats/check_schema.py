# check_schema.py
#   Trail files against the JSON Schema of their records.
#
#   check_schema.py SCHEMA FILE...
#
# Prints a JSON object:
#
#   records   number of records
#   errors    what is wrong with them, in the schema's view, the first few
#   strict    the same if unknown fields are not allowed
#   order     fields that are not in the schema's order
#   seen      fields that were not null in some record
#   classes   classes that there were
#   accepted  records that were broken on purpose, field by field, and are valid
#             all the same
#   fields    the schema's fields in order
#
# Copyright (c) 2026, pg_audit_queue contributors

import copy
import json
import sys

import jsonschema

MOST = 10


def errors_of(validator, records):
    found = []
    for record in records:
        for error in validator.iter_errors(record):
            if len(found) < MOST:
                path = "/".join(map(str, error.absolute_path))
                found.append(f"sequence {record.get('sequence')}: {path}: {error.message}")
    return found


def broken(record, fields, required):
    """What a record could be like that is none; with a word about each."""
    for field in fields:
        if field in required:
            less = copy.deepcopy(record)
            del less[field]
            yield f"without {field}", less
        # nothing is such an object, a fraction, false, or such an array
        for value in ({"x": 1}, 0.5, False, [1]):
            if field == "superuser" and value is False:
                continue
            yield f"{field} is {value!r}", {**record, field: value}
        # an unknown word where there is a list of them
        if field in ("type", "auditType", "class", "commandTextOmitted", "paramListOmitted",
                     "exitCode", "netProtocol", "dbProtocol", "serverType", "startTime",
                     "sessionId", "virtualTransactionId", "remotePort", "systemIdentifier"):
            yield f"{field} is a word", {**record, field: "word"}
        if field in ("sequence", "rowCount", "statementId", "pid", "transactionId"):
            yield f"{field} is negative", {**record, field: -1}
    if record["type"] == "gap":
        yield "gap with a session", {**record, "sessionId": "1.1"}
        yield "gap of class READ", {**record, "class": "READ"}
        yield "gap with settings", {**record, "settings": {"a.b": "c"}}
        yield "gap with a policy", {**record, "policy": "x"}
        yield "gap with a client", {**record, "authMethod": "x"}
        yield "gap with a superuser", {**record, "superuser": True}
        yield "gap without a message", {**record, "errorMessage": None}
    else:
        yield "record of class GAP", {**record, "class": "GAP"}
        yield "neither session nor object", {**record, "auditType": None}
        yield "text that is left out", {**record, "commandText": "x",
                                        "commandTextOmitted": "not logged",
                                        "paramListOmitted": "not logged"}
        yield "success with an error", {**record, "exitCode": "00000", "errorMessage": "x"}
    yield "next version", {**record, "formatVersion": 2}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    strict = jsonschema.Draft202012Validator({**schema, "additionalProperties": False})
    fields = list(schema["properties"])
    records = []
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8", newline="\n") as file:
            records += [json.loads(line) for line in file]

    samples = {}
    for record in records:
        samples.setdefault(record["class"], record)
    accepted = [f"{sample['class']}: {word}" for sample in samples.values()
                for word, record in broken(sample, fields, schema["required"])
                if validator.is_valid(record)]
    unknown = [{**sample, "somethingNew": 1} for sample in samples.values()]
    accepted += [f"{record['class']}: unknown field, strict" for record in unknown
                 if strict.is_valid(record)]
    json.dump({
        "records": len(records),
        "errors": errors_of(validator, records + unknown),
        "strict": errors_of(strict, records),
        "order": [list(record) for record in records
                  if list(record) != [f for f in fields if f in record]][:MOST],
        "seen": sorted({name for record in records
                        for name, value in record.items() if value is not None}),
        "classes": sorted(samples),
        "accepted": accepted,
        "fields": fields,
    }, sys.stdout)


if __name__ == "__main__":
    main()
