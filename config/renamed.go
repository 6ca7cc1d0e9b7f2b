package config

import (
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
)

// Renamed is a name that users met in an earlier version, and its present one.
type Renamed struct {
	// Kind of name: key of a document, flag, value, json, label or file.
	Kind string
	// Old and New are the names. A key is a dotted path as the reference has it. [] is any
	// element of a list; a section stands for every key in it.
	Old, New string
	// Why says in a few words what the new name makes plain.
	Why string
}

// kindKey is the kind of the names that a document has.
const kindKey = "key"

// RenamedNames lists every name that changed, in the order of the page that shows them.
func RenamedNames() []Renamed { return slices.Clone(renamed) }

// NewKey returns the present path of a key of an earlier version, such as engines.0.slots;
// ok is false where no key had that name.
func NewKey(path string) (now string, ok bool) {
	parts := strings.Split(path, ".")
	for _, r := range renamed {
		if r.Kind != kindKey {
			continue
		}
		if now, ok = r.moved(parts); ok {
			return now, true
		}
	}
	return "", false
}

// moved applies one renaming to the parts of a path. The parts behind those of Old stay.
func (r Renamed) moved(parts []string) (now string, ok bool) {
	old := strings.Split(strings.ReplaceAll(r.Old, "[]", ".[]"), ".")
	if len(parts) < len(old) {
		return "", false
	}
	var indices []string
	for i, part := range old {
		switch {
		case part == "[]":
			indices = append(indices, parts[i])
		case part != parts[i]:
			return "", false
		}
	}
	now = strings.ReplaceAll(r.New, "[]", ".[]")
	for _, index := range indices {
		now = strings.Replace(now, "[]", index, 1)
	}
	return strings.Join(append([]string{now}, parts[len(old):]...), "."), true
}

// renamedNear returns the present path of the key of an earlier version that was probably meant by one
// that a section does not have, "" of none.
func renamedNear(section, key string) string {
	var leaves []string
	for _, r := range renamed {
		if r.Kind == kindKey && parent(r.Old) == section {
			leaves = append(leaves, strings.TrimPrefix(r.Old, section+"."))
		}
	}
	if near := spelling.Nearest(key, leaves); near != "" {
		now, _ := NewKey(join(section, near))
		return now
	}
	return ""
}

// migrateHint follows the first old key of a document.
const migrateHint = "; headway config --migrate FILE prints the document with its present keys"

// renamedProblem says what a key of an earlier version is called now.
func renamedProblem(now string) string { return "is now " + now }
