// Package apitest makes wrong requests from the routes of a control plane, and judges how each is answered.
// The routes and who may ask for them come from docs/reference/access.md, which a test in api holds to the code.
package apitest

import (
	"errors"
	"fmt"
	"strings"
)

// Answers that the table of access has for a caller.
const (
	mayYes    = "yes"
	maySecret = "secret"
	mayNo     = "no"
)

// Callers of the table. The names of roles are the others.
const (
	callerNone    = "none"
	callerKey     = "key"
	callerOpen    = "without tokens"
	callerOpenKey = "with a key, without tokens"
)

// Route is a path of the API, with the callers that it lets in.
type Route struct {
	// Method and Path as http.ServeMux reads them: Path has parts such as {id} and {path...}.
	Method, Path string
	// may has yes, secret or no by caller.
	may map[string]string
}

// Pattern is the route as the table names it.
func (r Route) Pattern() string { return r.Method + " " + r.Path }

// Routes reads the table of access. An error says which line is none of the table's.
func Routes(markdown string) ([]Route, error) {
	var callers []string
	var routes []Route
	for line := range strings.Lines(markdown) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if callers == nil {
			callers = cells[1:]
			continue
		}
		method, path, ok := strings.Cut(strings.Trim(cells[0], "`"), " ")
		if !ok || len(cells) != len(callers)+1 {
			return nil, fmt.Errorf("the table of access has the line %q", line)
		}
		r := Route{Method: method, Path: path, may: map[string]string{}}
		for i, caller := range callers {
			r.may[caller] = cells[i+1]
		}
		routes = append(routes, r)
	}
	if len(routes) == 0 {
		return nil, errors.New("there is no table of access")
	}
	return routes, nil
}
