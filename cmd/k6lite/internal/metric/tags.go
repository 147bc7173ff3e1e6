package metric

// Tag is one name and value.
type Tag struct{ Key, Value string }

// Tags is a set of tags over another one: what is set here hides the same name below. Nil is empty.
type Tags struct {
	Own   []Tag
	Below *Tags
}

// Get returns the value of a tag, the uppermost when it is set more than once.
func (t *Tags) Get(key string) (string, bool) {
	for ; t != nil; t = t.Below {
		for i := range t.Own {
			if t.Own[i].Key == key {
				return t.Own[i].Value, true
			}
		}
	}
	return "", false
}

// Set sets a tag of this layer.
func (t *Tags) Set(key, value string) {
	for i := range t.Own {
		if t.Own[i].Key == key {
			t.Own[i].Value = value
			return
		}
	}
	t.Own = append(t.Own, Tag{key, value})
}

// Unset removes a tag of this layer.
func (t *Tags) Unset(key string) {
	for i := range t.Own {
		if t.Own[i].Key == key {
			t.Own = append(t.Own[:i], t.Own[i+1:]...)
			return
		}
	}
}

func (t *Tags) match(want []Tag) bool {
	for _, w := range want {
		if v, ok := t.Get(w.Key); !ok || v != w.Value {
			return false
		}
	}
	return true
}
