package apitest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Target is a server that is asked.
type Target struct {
	// URL without a path.
	URL    string
	Routes []Route
	// Tokens are the secrets by role; nil for a server without tokens.
	Tokens map[string]string
	// Rollout, Key and Secret are of a claim that was made for these requests; empty for none.
	Rollout, Key, Secret string
	// Plain: for unknown paths and methods the server has net/http's own words, which are no JSON.
	Plain bool
}

// request is one that is wrong, or may be.
type request struct {
	route          Route
	caller         string // as the table of access names it
	method, target string
	header         http.Header
	host           string
	body           string
	// how says what was done to it.
	how []string
	// right: it is answered as its route is, and so may succeed. sure: it is wrong whatever the server's state.
	right, sure bool
	// raw is sent as it is, in place of all else.
	raw string
}

// generator makes requests.
type generator struct {
	*Target
	*rand.Rand
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// next makes a request: a route, a caller, and up to three things that are wrong with it.
func (g *generator) next() *request {
	q := &request{route: g.Routes[g.IntN(len(g.Routes))], header: http.Header{}, right: true}
	q.method, q.target = q.route.Method, g.fill(q.route.Path)
	g.identify(q)
	if Message(q.route.Pattern()) != nil {
		g.fillBody(q)
	}
	may := q.route.may[q.caller]
	if q.caller == callerNone && g.Tokens == nil {
		may = q.route.may[callerOpen]
	}
	for range g.IntN(3) {
		one(g.Rand, g.wrongMethod, g.wrongPath, g.oddQuery, g.oddHeader, g.oddHeader)(q)
	}
	switch {
	case g.IntN(40) == 0:
		g.breakFraming(q)
	// Whoever may change the run sends nothing that it could take: it would be right.
	case q.method == http.MethodPost && q.right && may == mayYes && q.caller != callerKey && q.caller != callerOpenKey, may == maySecret && g.IntN(2) == 0:
		g.makeSure(q)
	}
	return q
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// fill puts values into the parameters of a path.
func (g *generator) fill(path string) string {
	return parameter.ReplaceAllStringFunc(path, func(name string) string {
		if name == "{$}" {
			return ""
		}
		values := []string{"1", "x", "0", "latest", "policy.safetensors", "g1-s0-a1"}
		if name == "{id}" {
			values = []string{"g1-s0-a1", "g999999-s0-a0", "g1-s0", "g01-s0-a1", "g9223372036854775808-s0-a1", "1"}
			if g.Rollout != "" {
				values = append(values, g.Rollout, g.Rollout, g.Rollout)
			}
		}
		if g.IntN(3) == 0 {
			values = []string{"-1", "1e3", "01", "99999999999999999999", "%00", "%ff%fe", "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%5c", "a%20b", "%1b%5b31m", "é", "%e2%80%ae",
				"x;y", "a:b@c", "*", "~", strings.Repeat("a", 300), strings.Repeat("%c3%a9", 2000), "groups/1/samples", "stream", "$(id)", "%0d%0aX-A:%20b"}
		}
		return one(g.Rand, values...)
	})
}

// identify chooses who asks, and with what.
func (g *generator) identify(q *request) {
	callers := []string{callerNone, callerNone, "unknown", "foreign key", callerKey}
	for role := range g.Tokens {
		callers = append(callers, role)
	}
	slices.Sort(callers)
	q.caller = one(g.Rand, callers...)
	bearer := ""
	switch q.caller {
	case callerNone:
	case "unknown":
		bearer = one(g.Rand, "x", strings.Repeat("y", 43), g.Secret, g.Rollout, "token:"+g.Rollout, strings.Repeat("z", 9000))
	case "foreign key":
		bearer = g.Rollout + "." + strings.Repeat("A", 43)
	case callerKey:
		if bearer = g.Key; bearer == "" {
			q.caller = callerNone
		}
	default:
		bearer = g.Tokens[q.caller]
	}
	if q.caller == "unknown" || q.caller == "foreign key" {
		q.caller = callerNone
	}
	if g.Tokens == nil {
		q.caller = map[string]string{callerNone: callerOpen, callerKey: callerOpenKey}[q.caller]
	}
	if bearer != "" {
		q.header.Set("Authorization", one(g.Rand, "Bearer ", "Bearer ", "Bearer ", "bearer ", "BEARER ")+bearer)
	}
}

// fillBody gives a request a document of its route, bent or not. The secret in it is right, missing or another's.
func (g *generator) fillBody(q *request) {
	secret := one(g.Rand, "", "", "x", strings.Repeat("B", 43), g.Key)
	document := example(Message(q.route.Pattern()), secret)
	for range g.IntN(3) {
		document.bend(g.Rand)
	}
	q.body = document.String()
	q.header.Set("Content-Type", "application/json")
	if q.route.Path == "/api/v1/weights" && g.IntN(2) == 0 {
		g.inParts(q)
	}
}

// inParts puts the body into the first part of a publish, and a file after it.
func (g *generator) inParts(q *request) {
	const boundary = "between"
	part := func(name, content string) string {
		return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"f\"\r\n\r\n" + content + "\r\n"
	}
	q.header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	q.body = part(one(g.Rand, "manifest", "manifest", "manifest", "x", ""), q.body) + part(one(g.Rand, "policy.safetensors", "../x", "\x00"), strings.Repeat("\x00", g.IntN(100))) + one(g.Rand, "--"+boundary+"--\r\n", "--"+boundary, "")
}

// makeSure makes a request wrong beyond doubt: its document is none of its message, or its secret is missing.
func (g *generator) makeSure(q *request) {
	q.sure = true
	secret := g.Secret
	document := example(Message(q.route.Pattern()), secret)
	q.header.Set("Content-Type", "application/json")
	switch g.IntN(5) {
	case 0:
		q.body = document.String()
		q.header.Set("Content-Type", one(g.Rand, "text/plain", "application/x-www-form-urlencoded", "application/json; charset", "multipart/form-data", "multipart/form-data; boundary=x", "\"", "application/octet-stream"))
	case 1:
		q.body = spoil(g.Rand, document.String())
	default:
		document.breakField(g.Rand)
		q.body = document.String()
	}
	if q.route.Path == "/api/v1/weights" && q.header.Get("Content-Type") == "application/json" && g.IntN(2) == 0 {
		g.inParts(q)
	}
	q.how = append(q.how, "a document of another form")
}

func (g *generator) wrongMethod(q *request) {
	q.method = one(g.Rand, "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW", "get")
	q.right = q.right && q.method == q.route.Method
	q.how = append(q.how, "the method "+q.method)
}

func (g *generator) wrongPath(q *request) {
	q.right = false
	path := q.target
	q.target = one(g.Rand, path+"/", "/"+path, path+"/..", path+"/../../status", strings.ToUpper(path), strings.Replace(path, "v1", "v2", 1), path+"%2f", path+"%00",
		strings.Replace(path, "/", "/./", 1), strings.Replace(path, "/", "%2f", 2), path[:len(path)/2], path+strings.Repeat("/a", 2000), strings.ReplaceAll(path, "/", "//"), path+";a=b", "/"+path[1:]+"#x", "/api", "/debug/pprof/", "/.git/config", "/metrics/x")
	if !strings.HasPrefix(q.target, "/") {
		q.target = "/" + q.target
	}
	q.how = append(q.how, "another path")
}

func (g *generator) oddQuery(q *request) {
	query := one(g.Rand, "a=b", "token=x", "access_token=", "a=%zz", "%", "=", "&&&&", "from=-1", "from=99999999999", "since=NaN&step=1e9&limit=-1", "form="+url.QueryEscape("../\x00"), "wait_s=1e9",
		"version=%ff", strings.Repeat("a=b&", 3000), "group=9223372036854775808&sample=x", "last="+strings.Repeat("9", 400))
	q.target += "?" + query
	if strings.Contains(query, "token") {
		q.right = false
	}
	q.how = append(q.how, "a query")
}

func (g *generator) oddHeader(q *request) {
	set := func(name string, values ...string) { q.header[name] = append(q.header[name], one(g.Rand, values...)) }
	switch g.IntN(14) {
	case 0:
		q.host, q.right = one(g.Rand, "evil.example", "127.0.0.1.evil.example", "[::1", "a b", strings.Repeat("h", 300)), false
	case 1:
		set("Origin", "http://evil.example", "null", "file://", "http://127.0.0.1:1")
		q.right = false
	case 2:
		set("Sec-Fetch-Site", "cross-site", "same-site", "x")
		q.right = false
	case 3:
		set("Content-Encoding", "gzip", "br", "identity", "x")
	case 4:
		set("Idempotency-Key", "k", strings.Repeat("k", 5000), "", "é\xff", g.Rollout)
	case 5:
		set("X-Headway-Rollout", g.Rollout, "g1-s0-a1", "x", strings.Repeat("g", 4000))
	case 6:
		set("Range", "bytes=0-", "bytes=9-1", "bytes=-1", "bytes=0-0,2-3", "lines=1", "bytes=99999999999999999999-")
	case 7:
		set("If-None-Match", "*", `"x"`, "W/")
	case 8:
		set("Accept", "text/html", "", "application/x", strings.Repeat("a/b,", 1000))
	case 9:
		set("Upgrade", "websocket", "h2c")
		set("Connection", "Upgrade")
	case 10:
		set("Authorization", "Basic eDp5", "Bearer", "Bearer  ", "Digest x", "Bearer a b c")
		q.right = q.right && len(q.header["Authorization"]) == 1 && g.Tokens == nil
	case 11:
		set("Expect", "100-continue", "x")
		q.right = q.right && q.header.Get("Expect") != "x"
	case 12:
		set("X-Long", strings.Repeat("l", 1<<g.IntN(18)))
	case 13:
		set("Traceparent", "00-"+strings.Repeat("0", 32)+"-"+strings.Repeat("0", 16)+"-01", "x", strings.Repeat("f", 100))
	}
	q.how = append(q.how, "a header")
}

// breakFraming makes a request that is no HTTP, or breaks off.
func (g *generator) breakFraming(q *request) {
	q.sure, q.right = true, false
	head := func(more string) string {
		text := q.method + " " + q.target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
		if bearer := q.header.Get("Authorization"); bearer != "" {
			text += "Authorization: " + bearer + "\r\n"
		}
		return text + "Content-Type: application/json\r\n" + more + "\r\n"
	}
	body := q.body
	if body == "" {
		body = "{}"
	}
	q.raw = one(g.Rand,
		head(fmt.Sprintf("Content-Length: %d\r\n", len(body)+100))+body,
		head("Content-Length: -1\r\n")+body, head("Content-Length: 5\r\nContent-Length: 6\r\n")+body, head("Content-Length: 99999999999999999999\r\n")+body,
		head(fmt.Sprintf("Content-Length: %d\r\n", len(body)/2))+body,
		head("Transfer-Encoding: chunked\r\n")+"zz\r\n"+body, head("Transfer-Encoding: chunked\r\n")+fmt.Sprintf("%x\r\n%s", len(body), body), head("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n")+"0\r\n\r\n",
		head("Transfer-Encoding: gzip, chunked\r\n")+"0\r\n\r\n", head("Transfer-Encoding: x\r\n")+body,
		"GET\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00", strings.Repeat("A", 3000), q.method+" "+q.target+" HTTP/9.9\r\n\r\n", q.method+" "+q.target+" HTTP/1.0\r\n\r\n", "CONNECT evil:443 HTTP/1.1\r\nHost: evil\r\n\r\n",
		q.method+" http://evil.example"+q.target+" HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", head("Bad Header: x\r\n")+body, head("X: \x00\r\n")+body,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", head(strings.Repeat("X-Many: y\r\n", 3000)), q.method+" "+q.target+"\r\n\r\n")
	q.how = append(q.how, "broken HTTP")
}
