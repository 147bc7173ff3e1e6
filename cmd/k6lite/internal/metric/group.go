package metric

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// maxOutline bounds the groups and checks of a run: a name built from data would otherwise grow without end.
const maxOutline = 10_000

// Outline is the tree of groups with the checks in them. It is safe for concurrent use.
type Outline struct {
	mu   sync.Mutex // guards everything below Root but the counts
	size int
	root *Group
}

// Group is a named part of the script.
type Group struct {
	Name, Path string
	groups     map[string]*Group
	checks     map[string]*Check
}

// Check counts how often a named condition held.
type Check struct {
	Name, Path    string
	Passes, Fails atomic.Int64
}

// NewOutline returns a tree with only the root, whose name and path are empty.
func NewOutline() *Outline {
	return &Outline{root: &Group{groups: map[string]*Group{}, checks: map[string]*Check{}}}
}

// Root returns the outermost group.
func (o *Outline) Root() *Group { return o.root }

// Separator stands between the names in a path and may not be part of one.
const Separator = "::"

// Group returns the group of that name inside parent, made on first use.
func (o *Outline) Group(parent *Group, name string) (*Group, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := parent.groups[name]; g != nil {
		return g, nil
	}
	if err := o.grow("group", name); err != nil {
		return nil, err
	}
	g := &Group{
		Name: name, Path: parent.Path + Separator + name,
		groups: map[string]*Group{}, checks: map[string]*Check{},
	}
	parent.groups[name] = g
	return g, nil
}

// Check returns the check of that name in a group, made on first use.
func (o *Outline) Check(in *Group, name string) (*Check, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := in.checks[name]; c != nil {
		return c, nil
	}
	if err := o.grow("check", name); err != nil {
		return nil, err
	}
	c := &Check{Name: name, Path: in.Path + Separator + name}
	in.checks[name] = c
	return c, nil
}

func (o *Outline) grow(what, name string) error {
	if strings.Contains(name, Separator) {
		return fmt.Errorf("%s %q: a name must not contain %q", what, name, Separator)
	}
	if o.size++; o.size > maxOutline {
		return fmt.Errorf("%s %q: more than %d groups and checks; do not build their names from data", what, name, maxOutline)
	}
	return nil
}

// Groups lists the groups inside g in name order. Only call it when the run is over.
func (g *Group) Groups() []*Group {
	all := make([]*Group, 0, len(g.groups))
	for _, c := range g.groups {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Group) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Checks lists the checks of g in name order. Only call it when the run is over.
func (g *Group) Checks() []*Check {
	all := make([]*Check, 0, len(g.checks))
	for _, c := range g.checks {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Check) int { return strings.Compare(a.Name, b.Name) })
	return all
}
