package httpclient

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
)

// ErrDecode is in the chain of every error about a content encoding.
var ErrDecode = errors.New("cannot decode the body")

// decode undoes the content encoding of a body: gzip, deflate, or none.
func decode(encoding string, body []byte) ([]byte, error) {
	var r io.Reader
	var err error
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		if len(body) == 0 { // HEAD, 204
			return body, nil
		}
		r, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate":
		if len(body) == 0 {
			return body, nil
		}
		r, err = zlib.NewReader(bytes.NewReader(body))
	default:
		err = fmt.Errorf("k6lite does not have the encoding %q", encoding)
	}
	if err != nil {
		return nil, errors.Join(ErrDecode, err)
	}
	plain, err := readAll(nil, r)
	if err != nil {
		return nil, errors.Join(ErrDecode, err)
	}
	return plain, nil
}
