"""Random alterations of files: of their bytes, and of the values inside of them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from hushgraph.ledger.entries import FIRST_LINK, canonical, digest_of
from hushgraph.ledger.keys import Head, Keys

ODD = (
    None,
    True,
    -1,
    0,
    2.5,
    1e308,
    10**12,
    2**33,
    10**17,
    "",
    "inf",
    "nan",
    "\x1b[2J",
    "x" * 5000,
    [],
    {},
    [[]],
    {"a": 1},
)
ODD_TEXT = ("NaN", "1e999", "-" * 3, '{"a":1,"a":2}', "[" * 3000, "9" * 6000, "\\u0000", "\udc80")


def bytes_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One to a few changes of bytes: bits flipped, bytes put in, taken out, repeated, a cut."""
    found = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(1, len(found))))
        length = int(rng.integers(1, 64))
        match int(rng.integers(0, 6)):
            case 0 if found:
                found[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                found[at : at + length] = rng.bytes(length)
            case 2:
                found[at:at] = rng.bytes(length)
            case 3:
                del found[at : at + length]
            case 4:
                found[at:at] = found[at : at + length]
            case _:
                del found[at:]
    return bytes(found)


def json_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One place in a JSON text replaced by something odd, or left out."""
    values = json.loads(content)
    places = list(_places(values))
    holder, key = places[int(rng.integers(0, len(places)))]
    if rng.random() < 0.2:
        del holder[key]
    elif rng.random() < 0.2:
        holder[key] = "@odd@"
        odd = ODD_TEXT[int(rng.integers(0, len(ODD_TEXT)))]
        return json.dumps(values).replace('"@odd@"', odd).encode("utf-8", "surrogatepass")
    else:
        holder[key] = ODD[int(rng.integers(0, len(ODD)))]
    return json.dumps(values).encode("utf-8", "surrogatepass")


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in list(items):
        yield values, key
        if isinstance(value, dict | list):
            yield from _places(value)


def npz_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One array of an archive with another type, shape or values, or left out; sometimes a header that lies."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = sorted(arrays)[int(rng.integers(0, len(arrays)))]
    if rng.random() < 0.3:
        return _lying(arrays, name, rng)
    arrays[name] = _array_altered(arrays[name], rng)
    if rng.random() < 0.1:
        del arrays[name]
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _array_altered(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    kinds = ("i1", "u8", "f2", "f8", "c16", "U4", "?", "M8[s]", "S3")
    match int(rng.integers(0, 6)):
        case 0:
            return np.zeros(array.shape, dtype=kinds[int(rng.integers(0, len(kinds)))])
        case 1:
            return array.reshape(-1)[: max(0, array.size - 1)]
        case 2:
            return array[None]
        case 3:
            return array[:0]
        case _:
            found = array.copy().reshape(-1)
            if found.size and found.dtype.kind in "iuf":
                wide = np.int64 if found.dtype.kind in "iu" else found.dtype
                odd = (-(2**40), -2, 2**33, 2**62) if wide is np.int64 else (np.nan, np.inf, 1e30, -1.0)
                found = found.astype(wide)
                found[int(rng.integers(0, found.size))] = odd[int(rng.integers(0, 4))]
            return found.reshape(array.shape)


def _lying(arrays: dict[str, np.ndarray], name: str, rng: np.random.Generator) -> bytes:
    """An archive in which one header promises more than there is, or is no header."""
    header = {"descr": "<i8", "fortran_order": bool(rng.random() < 0.5), "shape": (2 ** int(rng.integers(20, 60)),)}
    text = (repr(header), repr({**header, "descr": "|O"}), "{" * 500, repr({**header, "shape": (-5, 3)}))
    chosen = text[int(rng.integers(0, len(text)))].encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for other, array in arrays.items():
            with archive.open(f"{other}.npy", "w") as member:
                if other == name:
                    member.write(b"\x93NUMPY\x01\x00" + len(chosen).to_bytes(2, "little") + chosen + bytes(10_000))
                else:
                    np.lib.format.write_array(member, array)
    return file.getvalue()


def export_altered(content: bytes, rng: np.random.Generator) -> bytes:
    """One value of an entry replaced, the chain of hashes written again and signed with a key of one's own."""
    *entries, _ = [json.loads(line) for line in content.splitlines()]
    at = int(rng.integers(0, len(entries)))
    try:
        entries[at]["values"] = json.loads(json_altered(json.dumps(entries[at]["values"]).encode(), rng))
        keys, link = Keys.new(), FIRST_LINK
        if at:
            entries[0]["values"]["public_key"] = keys.public
        for entry in entries:
            entry["previous"] = link
            body = canonical(entry["values"])
            entry["hash"] = link = digest_of(entry["number"], entry["kind"], entry["time"], body, link)
    except (ValueError, RecursionError):
        return content[: len(content) // 2]
    last = entries[-1]
    head = Head.signed(keys, entries[0]["hash"], last["number"], last["hash"], last["time"])
    return "".join(canonical(line) + "\n" for line in (*entries, {"head": head.as_dict()})).encode()
