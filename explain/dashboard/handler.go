package dashboard

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/loop"
)

// Data returns the handler of the paths below /api/v1/view. It checks no credentials.
func (m *Model) Data() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, answer func(*http.Request) (any, error)) {
		mux.HandleFunc("GET /api/v1/view/"+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			if err != nil {
				refuse(w, err)
				return
			}
			writeJSON(w, r, v)
		})
	}
	get("info", func(*http.Request) (any, error) { return m.Info(), nil })
	get("summary", func(*http.Request) (any, error) { return m.Summary(), nil })
	get("tracks", func(*http.Request) (any, error) { return m.Tracks(), nil })
	get("queue", func(*http.Request) (any, error) { return m.Queue(), nil })
	get("moves", func(*http.Request) (any, error) { return m.Moves(), nil })
	get("series", m.answerSeries)
	get("findings", func(r *http.Request) (any, error) { return m.Findings(r.Context()) })
	get("frontier", func(r *http.Request) (any, error) {
		return m.computing.do(r.Context(), func() (any, error) { return m.answerFrontier(r) })
	})
	get("schedules", func(r *http.Request) (any, error) {
		return m.computing.do(r.Context(), func() (any, error) { return m.answerSchedules(r) })
	})
	get("groups", m.answerGroups)
	get("groups/{id}", m.answerGroup)
	mux.HandleFunc("GET /api/v1/view/tile", m.serveTile)
	mux.HandleFunc("GET /api/v1/view/stream", m.serveStream)
	mux.HandleFunc("/api/v1/view/", func(w http.ResponseWriter, r *http.Request) {
		read := r.Clone(r.Context())
		read.Method = http.MethodGet
		if _, pattern := mux.Handler(read); pattern != "/api/v1/view/" {
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, &refusal{http.StatusMethodNotAllowed, "method_not_allowed", "what is here can only be read: want GET or HEAD"})
			return
		}
		refuse(w, &refusal{http.StatusNotFound, "not_found", "no " + r.Method + " " + r.URL.Path + " here"})
	})
	return mux
}

// Handler returns pages and data together.
func (m *Model) Handler() http.Handler {
	data, pages := m.Data(), Pages()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(streamPatience)) // that of the request before outlives it
		page := pages[r.URL.Path]
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/"):
			data.ServeHTTP(w, r)
		case page == nil:
			http.Error(w, "no page "+r.URL.Path+": / is the dashboard", http.StatusNotFound)
		default:
			page.ServeHTTP(w, r)
		}
	})
}

// refusal is an answer that says what was wrong, in the form of the API's errors.
type refusal struct {
	status  int
	code    string
	message string
}

func (r *refusal) Error() string { return r.message }

func invalid(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, "invalid", fmt.Sprintf(format, args...)}
}

func (m *Model) answerSeries(r *http.Request) (any, error) {
	q := asked{r: r}
	from, to, points := q.whole("from", 0), q.whole("to", 0), q.whole("points", 1000)
	if q.err != nil {
		return nil, q.err
	}
	if points < 1 || points > pointsMax {
		return nil, invalid("points=%d: want 1 to %d", points, pointsMax)
	}
	return m.Series(from, to, int(points)), nil
}

func (m *Model) answerGroups(r *http.Request) (any, error) {
	q := asked{r: r}
	query := Query{From: loop.GroupID(q.whole("from", 0)), To: loop.GroupID(q.whole("to", 0)),
		StepFrom: q.bound("step_from"), StepTo: q.bound("step_to"), StalenessFrom: q.bound("staleness_min"), StalenessTo: q.bound("staleness_max"),
		RewardFrom: q.real("reward_min"), RewardTo: q.real("reward_max"), Text: r.URL.Query().Get("q"), Sort: r.URL.Query().Get("sort"),
		Readable: r.URL.Query().Get("readable") != "", Limit: int(q.whole("limit", 100))}
	if q.err != nil {
		return nil, q.err
	}
	if query.Sort != "" && sorts[strings.TrimPrefix(query.Sort, "-")] == nil {
		return nil, invalid("sort=%s: want id, step, reward, staleness or tokens, with - in front for descending", query.Sort)
	}
	return m.Groups(query), nil
}

// answerFrontier reads every parameter as an input.
func (m *Model) answerFrontier(r *http.Request) (any, error) {
	q := asked{r: r}
	numbers, choices := map[string]float64{}, map[string]string{}
	for name := range r.URL.Query() {
		isNumber := slices.ContainsFunc(settingNumbers, func(n settingNumber) bool { return n.name == name })
		switch {
		case isNumber:
			if v := q.real(name); v != nil {
				numbers[name] = *v
			}
		case settingChoices[name] != nil:
			choices[name] = q.text(name)
		default:
			return nil, invalid("%.40q is no input of a prediction: GET frontier without any names them", name)
		}
	}
	if q.err != nil {
		return nil, q.err
	}
	return m.Frontier(numbers, choices)
}

// answerSchedules reads every parameter as an input but topology.
func (m *Model) answerSchedules(r *http.Request) (any, error) {
	q := asked{r: r}
	given := map[string]float64{}
	known := map[string]bool{"topology": true}
	for _, one := range m.scheduleInputs() {
		known[one.name] = true
		if v := q.real(one.name); v != nil {
			given[one.name] = *v
		}
	}
	for name := range r.URL.Query() {
		if !known[name] {
			return nil, invalid("%.40q is no input of a schedule: GET schedules without any names them", name)
		}
	}
	if q.err != nil {
		return nil, q.err
	}
	return m.Schedules(r.Context(), given, q.text("topology"))
}

func (m *Model) answerGroup(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, invalid("group %q: want its number", r.PathValue("id"))
	}
	d, found := m.Group(loop.GroupID(id))
	if !found {
		return nil, &refusal{http.StatusNotFound, "not_found", m.unknown(loop.GroupID(id))}
	}
	return d, nil
}

// serveTile answers with a tile. One that cannot change is said to be immutable.
func (m *Model) serveTile(w http.ResponseWriter, r *http.Request) {
	q := asked{r: r}
	level, index := q.whole("level", -1), q.whole("index", 0)
	first, to := q.whole("from_track", 0), q.whole("to_track", 1<<30)
	if q.err != nil {
		refuse(w, q.err)
		return
	}
	if level < levelMin || level > levelMax || index < 0 || index > indexMax(level) {
		refuse(w, invalid("level=%d, index=%d: want a level from %d to %d, and an index of a time that can be", level, index, levelMin, levelMax))
		return
	}
	body, generation, final := m.tile(windowOf(int(level), index, int(first), int(to)))
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	if final && q.whole("version", -1) == generation {
		h.Set("Cache-Control", "private, max-age=86400, immutable")
	}
	etag := tagOf(body)
	h.Set("ETag", etag)
	if matches(r, etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, r, body)
}

// indexMax is the last tile of a level whose times are whole numbers of nanoseconds that there are.
func indexMax(level int64) int64 { return math.MaxInt64/(tilePixels*(1000<<level)) - 1 }

// asked reads a request's parameters, and keeps the first error.
type asked struct {
	r   *http.Request
	err error
}

func (a *asked) text(name string) string { return a.r.URL.Query().Get(name) }

func (a *asked) whole(name string, otherwise int64) int64 {
	if p := a.bound(name); p != nil {
		return *p
	}
	return otherwise
}

func (a *asked) bound(name string) *int64 {
	text := a.text(name)
	if text == "" {
		return nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		a.fail(name, text, "a whole number")
		return nil
	}
	return &v
}

func (a *asked) real(name string) *float64 {
	text := a.text(name)
	if text == "" {
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v-v != 0 {
		a.fail(name, text, "a number")
		return nil
	}
	return &v
}

func (a *asked) fail(name, text, want string) {
	if a.err == nil {
		a.err = invalid("%s=%.40q: want %s", name, text, want)
	}
}

// write sends a body.
func write(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = newDeadlineWriter(w).Write(body) // the reader has left
	}
}

// deadlineBytes is what a reader has to take within streamPatience.
const deadlineBytes = 64 << 10

// deadlineWriter writes for readers that may take nothing: each piece has its time, and then the connection ends.
type deadlineWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newDeadlineWriter(w http.ResponseWriter) deadlineWriter {
	return deadlineWriter{w, http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p deadlineWriter) Write(body []byte) (n int, err error) {
	for piece := range slices.Chunk(body, deadlineBytes) {
		_ = p.control.SetWriteDeadline(time.Now().Add(streamPatience)) // where the connection knows deadlines
		taken, err := p.w.Write(piece)
		if n += taken; err != nil {
			return n, err
		}
	}
	return n, nil
}

// packFrom is the size from which an answer in JSON is compressed, where the reader takes that.
const packFrom = 4 << 10

func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	body, err := encodeJSON(v)
	if err != nil {
		refuse(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if len(body) < packFrom || !acceptsGzip(r) {
		write(w, r, body)
		return
	}
	h.Set("Content-Encoding", "gzip")
	pack, err := gzip.NewWriterLevel(newDeadlineWriter(w), gzip.BestSpeed)
	if err == nil {
		_, err = pack.Write(body)
	}
	if err == nil {
		_ = pack.Close()
	}
}

// refuse answers with an error in the API's form.
func refuse(w http.ResponseWriter, err error) {
	why, ok := err.(*refusal)
	switch {
	case ok:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		why = &refusal{http.StatusServiceUnavailable, "unavailable", "who asked has left, or the server ends"}
	default:
		why = &refusal{http.StatusInternalServerError, "internal", err.Error()}
	}
	body, _ := encodeJSON(map[string]any{"error": map[string]any{"code": why.code, "message": why.message}})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(why.status)
	_, _ = newDeadlineWriter(w).Write(body)
}
