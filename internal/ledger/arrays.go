package ledger

import (
	"encoding/binary"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// arrayCodec encodes the array types of the batch statement straight from Go slices. pgx's own codec boxes
// every element; for a batch of some forty arrays that cost more than everything else this process did for it.
// Types it does not know are left to pgx.
type arrayCodec struct{ *pgtype.ArrayCodec }

// registerArrays makes a session use arrayCodec.
func registerArrays(m *pgtype.Map) {
	for _, name := range []string{"_int8", "_int4", "_text", "_uuid", "_bytea", "_interval"} {
		t, ok := m.TypeForName(name)
		if !ok {
			continue
		}
		if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: name, OID: t.OID, Codec: arrayCodec{codec}})
		}
	}
}

// PlanEncode implements [pgtype.Codec].
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		element := c.ElementType.OID
		switch value.(type) {
		case []int64:
			return arrayPlan[int64]{element, func(b []byte, v int64) []byte {
				return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v))
			}}
		case []int32:
			return arrayPlan[int32]{element, func(b []byte, v int32) []byte {
				return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(v))
			}}
		case []string:
			return arrayPlan[string]{element, func(b []byte, v string) []byte {
				return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
			}}
		case [][]byte:
			return arrayPlan[[]byte]{element, func(b, v []byte) []byte {
				return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
			}}
		case []uuid.UUID:
			return arrayPlan[uuid.UUID]{element, func(b []byte, v uuid.UUID) []byte {
				return append(append(b, 0, 0, 0, 16), v[:]...)
			}}
		case []pgtype.Interval:
			return arrayPlan[pgtype.Interval]{element, appendInterval}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// appendInterval appends a length of −1 for none, else 16 bytes: microseconds, days, months.
func appendInterval(b []byte, v pgtype.Interval) []byte {
	if !v.Valid {
		return append(b, 0xff, 0xff, 0xff, 0xff)
	}
	b = binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 16), uint64(v.Microseconds))
	b = binary.BigEndian.AppendUint32(b, uint32(v.Days))
	return binary.BigEndian.AppendUint32(b, uint32(v.Months))
}

// arrayPlan writes the binary format of a one-dimensional array: dimensions, a flag that the server does not
// rely on, the element type, length and lower bound, then each element behind its length.
type arrayPlan[T any] struct {
	element uint32
	append  func([]byte, T) []byte
}

// Encode implements [pgtype.EncodePlan].
func (p arrayPlan[T]) Encode(value any, b []byte) ([]byte, error) {
	list := value.([]T)
	if list == nil {
		return nil, nil
	}
	dimensions := uint32(1)
	if len(list) == 0 {
		dimensions = 0
	}
	b = binary.BigEndian.AppendUint32(b, dimensions)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, p.element)
	if len(list) == 0 {
		return b, nil
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	b = binary.BigEndian.AppendUint32(b, 1)
	for _, v := range list {
		b = p.append(b, v)
	}
	return b, nil
}
