package vm

import (
	"strconv"
	"sync"

	"github.com/grafana/sobek"
)

// sharedArray holds the JSON of each element, made once by the first virtual user that asks.
type sharedArray struct {
	mu    sync.Mutex // held while the array is made
	made  bool
	items []string
}

func buildData(vu *VU) map[string]any {
	return map[string]any{"SharedArray": vu.sharedArray}
}

// sharedArray implements new SharedArray(name, fn).
func (vu *VU) sharedArray(call sobek.ConstructorCall) *sobek.Object {
	if !vu.inInit {
		vu.throw("new SharedArray must be called in the init context")
	}
	name := call.Argument(0)
	function, ok := sobek.AssertFunction(call.Argument(1))
	if !isString(name) || name.String() == "" || !ok {
		vu.throw("new SharedArray() needs a name and a function")
	}
	if vu.isAsync(call.Argument(1)) {
		vu.throw("new SharedArray() does not take an async function")
	}
	s := vu.host.Script
	s.mu.Lock()
	array := s.arrays[name.String()]
	if array == nil {
		array = new(sharedArray)
		s.arrays[name.String()] = array
	}
	s.mu.Unlock()
	array.mu.Lock()
	defer array.mu.Unlock()
	if !array.made {
		array.items = vu.elements(function)
		array.made = true
	}
	return vu.rt.NewDynamicArray(&sharedView{vu: vu, items: array.items})
}

// elements runs the function and turns what it returns into JSON, an element at a time.
func (vu *VU) elements(function sobek.Callable) []string {
	result, err := function(sobek.Undefined())
	if err != nil {
		panic(err)
	}
	array, ok := result.(*sobek.Object)
	if !ok || array.ClassName() != "Array" {
		vu.throw("the function of a SharedArray must return an array")
	}
	items := make([]string, array.Get("length").ToInteger())
	for i := range items {
		text, err := vu.stringify(array.Get(strconv.Itoa(i)))
		if err != nil {
			vu.throw("element %d of a SharedArray: %s", i, err)
		}
		if text == "" {
			vu.throw("element %d of a SharedArray is not data", i)
		}
		items[i] = text
	}
	return items
}

// sharedView is a SharedArray as one runtime sees it: reading gives a fresh copy, writing is refused.
type sharedView struct {
	vu    *VU
	items []string
}

var _ sobek.DynamicArray = (*sharedView)(nil)

// Len returns the number of elements.
func (v *sharedView) Len() int { return len(v.items) }

// Get returns a copy of an element.
func (v *sharedView) Get(i int) sobek.Value {
	if i < 0 || i >= len(v.items) {
		return sobek.Undefined()
	}
	item, err := v.vu.parse([]byte(v.items[i]))
	must(err) // it came from JSON.stringify
	return item
}

// Set refuses.
func (v *sharedView) Set(int, sobek.Value) bool { return false }

// SetLen refuses.
func (v *sharedView) SetLen(int) bool { return false }
