package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// terms are words that users meet in keys, flags, pages or JSON. Product code has one exported type of each name, so that a
// reader who meets the word knows the thing. A further package that has one stands here with the reason.
var terms = map[string]map[string]string{
	"Task": {
		"env":         "makes the problems that environment.task names",
		"env/code":    "implements env.Task, for the task code",
		"env/taskset": "is one prompt of a file of tasks, environment.tasks",
	},
	"Environment": {
		"config":    "is the section of the document",
		"loop/port": "is the port that plays rollouts",
	},
	"Verdict":     {"env/verifier": "is a rollout's reward and why"},
	"Feed":        {"explain/dashboard": "is the bounded buffer between a run and its pages"},
	"Judge":       {},
	"Book":        {},
	"Stage":       {},
	"Calibration": {},
}

// TestOneTypeOfATerm: no further package of the product exports a type that is called by a word of the users, and no reason
// stands for a type that has gone.
func TestOneTypeOfATerm(t *testing.T) {
	found := map[string][]string{}
	for _, f := range sources(t) {
		if f.test || strings.HasPrefix(f.room, "cmd/lab") || strings.HasPrefix(f.room, "internal/") {
			continue
		}
		for _, declared := range f.syntax.Decls {
			types, ok := declared.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok || terms[named.Name.Name] == nil {
					continue
				}
				term := named.Name.Name
				found[term] = append(found[term], f.room)
				if terms[term][f.room] == "" {
					t.Errorf("%s:%d: %s is a word of the users that means something else (%s): call this type by what it is, or give the reason in terms", f.path, line(named.Pos()), term, meanings(term))
				}
			}
		}
	}
	for term, rooms := range terms {
		for room, why := range rooms {
			if !slices.Contains(found[term], room) {
				t.Errorf("%s has no type %s any more: take its line out of terms (it %s)", room, term, why)
			}
		}
	}
}

// meanings says what a term stands for, and where.
func meanings(term string) string {
	var all []string
	for room, why := range terms[term] {
		all = append(all, room+"."+term+" "+why)
	}
	if len(all) == 0 {
		return "no type is called so"
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
