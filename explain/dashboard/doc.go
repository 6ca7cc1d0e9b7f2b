// Package dashboard is what a browser shows of a run: the pages, embedded as plain ES modules, and the data behind
// them. The same pages show a live run, a finished one and a simulation. Each is a Model, which observes the events of
// the run from any source and answers from bounded memory.
//
// Nothing here slows the loop: a live run's events arrive through a bounded queue, and a viewer's requests are answered
// from copies. No page asks anything of another machine.
//
// All data are under /api/v1/view:
//
//	GET info          Info
//	GET summary       Summary: queue health first
//	GET series        Series: ?from=STEP&to=STEP&points=N
//	GET tile          a Tile of the timeline, binary: ?level=L&index=I&version=ETAG
//	GET tracks        Tracks of the timeline
//	GET queue         Queue: the groups that are ready, and those that are open
//	GET groups        Groups: ?from=ID&to=ID&sort=…&limit=N, with payloads kept
//	GET groups/{id}   GroupDetail: prompt, turns, tokens
//	GET findings      diagnosis.Report
//	GET frontier      Frontier: ?concurrency=…&batch=… (what is not given is the run's)
//	GET schedules     Schedules: ?topology=…
//
// Changes come by GET /api/v1/view/stream, as server-sent events. An event "summary" has a Summary, at most four times
// a second; an event "step" has the newest points of the series. A viewer that is slow is sent the newest state when it
// reads again, and never a backlog.
package dashboard
