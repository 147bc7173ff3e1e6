package vm

import (
	"context"
	"fmt"

	"github.com/grafana/sobek"
)

// CallForFiles runs handleSummary() with the JSON of its argument and returns the documented result: a content for each
// name.
func (vu *VU) CallForFiles(ctx context.Context, name, argument string) (map[string][]byte, error) {
	result, err := vu.lifecycle(ctx, name, []string{argument})
	if err != nil || !given(result) {
		return nil, err
	}
	o, ok := result.(*sobek.Object)
	if !ok {
		return nil, fmt.Errorf("%s must return an object of outputs", name)
	}
	files := map[string][]byte{}
	for _, key := range o.Keys() {
		v := o.Get(key)
		if buffer, ok := export[sobek.ArrayBuffer](v); ok {
			files[key] = append([]byte(nil), buffer.Bytes()...)
			continue
		}
		if !isString(v) {
			return nil, fmt.Errorf("%s: output %q must be a string or an ArrayBuffer", name, key)
		}
		files[key] = []byte(v.String())
	}
	return files, nil
}
