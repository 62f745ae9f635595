package sim

import (
	"fmt"
	"strconv"
	"strings"
)

// names is what a Change may call servers by. It makes no ids: a group may be a
// million of them.
type names struct {
	single map[string]bool // ids that are names
	group  map[string]int  // sizes of groups of several
	zone   map[string]bool
}

// newNames refuses ids that are not distinct and names that mean two things.
func newNames(servers []Server) (names, error) {
	n := names{map[string]bool{}, map[string]int{}, map[string]bool{}}
	numbered := map[string][]int{} // single ids that look like those of a group
	for i, s := range servers {
		taken := func(id string) error {
			return bad(fmt.Sprintf("Scenario.Servers[%d].Name", i), fmt.Sprintf("%q", s.Name), "distinct ids; "+id+" is taken")
		}
		name := s.name()
		n.zone[s.Zone] = true
		if s.Count > 1 {
			if n.group[name] > 0 {
				return n, taken(name + "-0")
			}
			for _, k := range numbered[name] {
				if k < s.Count {
					return n, taken(fmt.Sprintf("%s-%d", name, k))
				}
			}
			n.group[name] = s.Count
			continue
		}
		if n.single[name] || n.member(name) {
			return n, taken(name)
		}
		n.single[name] = true
		if group, k, ok := splitID(name); ok {
			numbered[group] = append(numbered[group], k)
		}
	}
	// A Change that names several must not mean one other server too.
	for i, s := range servers {
		if s.Count > 1 && (n.single[s.name()] || n.member(s.name())) {
			return n, bad(fmt.Sprintf("Scenario.Servers[%d].Name", i), fmt.Sprintf("%q", s.Name), "not the id of a server of another group")
		}
	}
	return n, nil
}

// member tells whether an id is that of one of a group.
func (n names) member(id string) bool {
	group, k, ok := splitID(id)
	return ok && k < n.group[group]
}

// has tells whether a Change may have that in Servers.
func (n names) has(name string) bool {
	zone, ok := strings.CutPrefix(name, "zone:")
	return name == "" || n.single[name] || n.group[name] > 0 || n.member(name) || ok && zone != "" && n.zone[zone]
}

// splitID takes the id of one of a group apart.
func splitID(id string) (group string, k int, ok bool) {
	at := strings.LastIndexByte(id, '-')
	if at < 0 {
		return "", 0, false
	}
	k, err := strconv.Atoi(id[at+1:])
	if err != nil || k < 0 || strconv.Itoa(k) != id[at+1:] {
		return "", 0, false
	}
	return id[:at], k, true
}

// match lists the servers that the change names, by index.
func (c Change) match(servers []Server) []int {
	var out []int
	group, one, ok := splitID(c.Servers)
	at := 0
	for _, s := range servers {
		n := atLeastOne(s.Count)
		switch {
		case c.Servers == "" || c.Servers == s.name() || s.Zone != "" && c.Servers == "zone:"+s.Zone:
			for k := range n {
				out = append(out, at+k)
			}
		case ok && s.Count > 1 && s.name() == group && one < n:
			out = append(out, at+one)
		}
		at += n
	}
	if c.First > 0 && c.First < len(out) {
		out = out[:c.First]
	}
	return out
}
