"""The records that Python and the runtime share, field by field."""

import ctypes
from typing import ClassVar


class TensorRecord(ctypes.Structure):
    """As `simt_tensor` in runtime/state.h."""

    _fields_: ClassVar = [
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_int32),
        ("name", ctypes.c_char_p),
    ]


class LaunchRecord(ctypes.Structure):
    """As `simt_launch` in runtime/state.h."""

    _fields_: ClassVar = [
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("programmatic", ctypes.c_uint32),
        ("preempt", ctypes.c_uint32),
        ("check_races", ctypes.c_uint32),
        ("check_uninitialised", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("step_limit", ctypes.c_uint64),
        ("tensor_count", ctypes.c_uint32),
        ("tensors", ctypes.POINTER(TensorRecord)),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("entry", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("message_bytes", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("barriers", ctypes.c_uint64),
        ("programmatic_syncs", ctypes.c_uint64),
        ("programmatic_triggers", ctypes.c_uint64),
    ]
