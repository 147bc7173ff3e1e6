package vm

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"

	"github.com/grafana/sobek"
)

var cryptoExports = []string{
	"createHash", "createHMAC", "hmac", "md5", "randomBytes", "sha1", "sha256", "sha384", "sha512", "sha512_224",
	"sha512_256",
}

// hashes are the algorithms there are; md4 and ripemd160 are not in Go's standard library.
var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
	"sha512_224": sha512.New512_224, "sha512_256": sha512.New512_256,
}

func buildCrypto(vu *VU) map[string]any {
	all := map[string]any{
		"createHash": func(call sobek.FunctionCall) sobek.Value {
			return vu.hasher(vu.algorithm(call.Argument(0))())
		},
		"createHMAC": func(call sobek.FunctionCall) sobek.Value {
			return vu.hasher(hmac.New(vu.algorithm(call.Argument(0)), vu.bytesOf(call.Argument(1))))
		},
		"hmac": func(call sobek.FunctionCall) sobek.Value {
			h := hmac.New(vu.algorithm(call.Argument(0)), vu.bytesOf(call.Argument(1)))
			h.Write(vu.bytesOf(call.Argument(2)))
			return vu.encode(h.Sum(nil), call.Argument(3))
		},
		"randomBytes": vu.randomBytes,
	}
	for name, algorithm := range hashes {
		all[name] = func(call sobek.FunctionCall) sobek.Value {
			h := algorithm()
			h.Write(vu.bytesOf(call.Argument(0)))
			return vu.encode(h.Sum(nil), call.Argument(1))
		}
	}
	return all
}

func (vu *VU) algorithm(name sobek.Value) func() hash.Hash {
	if algorithm := hashes[name.String()]; algorithm != nil {
		return algorithm
	}
	if name.String() == "md4" || name.String() == "ripemd160" {
		vu.refuse("k6/crypto: %s", name)
	}
	vu.throw("k6/crypto: there is no algorithm %q", name)
	return nil
}

// hasher is what createHash and createHMAC return.
func (vu *VU) hasher(h hash.Hash) sobek.Value {
	o := vu.rt.NewObject()
	must(o.Set("update", func(call sobek.FunctionCall) sobek.Value {
		h.Write(vu.bytesOf(call.Argument(0)))
		return sobek.Undefined()
	}))
	must(o.Set("digest", func(call sobek.FunctionCall) sobek.Value {
		return vu.encode(h.Sum(nil), call.Argument(0))
	}))
	return o
}

// bytesOf reads a string or an ArrayBuffer.
func (vu *VU) bytesOf(v sobek.Value) []byte {
	if buffer, ok := export[sobek.ArrayBuffer](v); ok {
		return buffer.Bytes()
	}
	if !isString(v) {
		vu.throw("needs a string or an ArrayBuffer")
	}
	return []byte(v.String())
}

func (vu *VU) encode(sum []byte, encoding sobek.Value) sobek.Value {
	switch encoding.String() {
	case "hex":
		return vu.rt.ToValue(hex.EncodeToString(sum))
	case "base64":
		return vu.rt.ToValue(base64.StdEncoding.EncodeToString(sum))
	case "base64url":
		return vu.rt.ToValue(base64.URLEncoding.EncodeToString(sum))
	case "base64rawurl":
		return vu.rt.ToValue(base64.RawURLEncoding.EncodeToString(sum))
	case "binary":
		return vu.rt.ToValue(vu.rt.NewArrayBuffer(sum))
	default:
		vu.throw("the encoding must be hex, base64, base64url, base64rawurl or binary, not %s", encoding)
		return nil
	}
}

func (vu *VU) randomBytes(call sobek.FunctionCall) sobek.Value {
	const most = 1 << 20
	n := call.Argument(0).ToInteger()
	if n < 1 || n > most {
		vu.throw("randomBytes(%s): between 1 and %d", call.Argument(0), most)
	}
	bytes := make([]byte, n)
	must(func() error { _, err := rand.Read(bytes); return err }())
	return vu.rt.ToValue(vu.rt.NewArrayBuffer(bytes))
}
