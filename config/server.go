package config

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// Server says how a control plane (headway serve) is reached.
type Server struct {
	// Listen is the address and port of all paths; port 0 takes a free one. Off loopback it needs tokens. Default 127.0.0.1:7070.
	Listen string `json:"listen"`
	// TokenFile has a line "ROLE TOKEN" for each role: trainer, environment, engine, viewer or admin. Without it nothing is asked for, and listen must be loopback.
	TokenFile string `json:"token_file,omitempty"`
	// TLSCert and TLSKey are PEM files; with both, every path is TLS.
	TLSCert string `json:"tls_cert,omitempty"`
	// TLSKey is the private key of tls_cert.
	TLSKey string `json:"tls_key,omitempty"`
	// LeaseS is how long a trainer's lease lasts without being renewed, in seconds. Default 60.
	LeaseS float64 `json:"lease_s" above:"0" max:"86400"`
	// ClaimS is how long an environment worker's claim lasts without a word, in seconds. Default 60.
	ClaimS float64 `json:"claim_s" above:"0" max:"86400"`
	// DrainS is how long a stop waits for the running train step, in seconds. Default 30.
	DrainS float64 `json:"drain_s" min:"0" max:"86400"`
	// BodyBytesMax bounds the body of a request, weights apart. Default 256 MiB.
	BodyBytesMax int `json:"body_bytes_max" min:"1024" max:"1099511627776"`
	// WeightsBytesMax bounds the files of one published version. Default 64 GiB.
	WeightsBytesMax int `json:"weights_bytes_max" min:"1024" max:"1125899906842624"`
	// ConnectionsMax bounds open connections. An eighth of them is for those over which no request of a known client has come. Default half of the descriptors of the process, less where its rollouts need them for engines. They take at most an eighth of the memory, at 64 KiB each.
	ConnectionsMax int `json:"connections_max,omitempty" min:"16" max:"1048576"`
	// RequestsMax bounds the requests of one role under way, waiting ones included. Default half of connections_max, at most a sixteenth of the memory at 64 KiB each.
	RequestsMax int `json:"requests_max,omitempty" min:"1" max:"1048576"`
	// Directories are those below which a trainer may publish files that lie on a shared disk. A relative one begins where the control plane was started. Default none.
	Directories []string `json:"directories,omitempty"`
	// LogPayloads lets prompts and completions into logs, where they are otherwise left out. Default false.
	LogPayloads bool `json:"log_payloads"`
}

// Gateway says how agents that speak OpenAI's API become rollouts, under /v1 of a control plane.
type Gateway struct {
	// ClientSampling says what happens where a client's own temperature, top_p and the like differ from rollout.sampling. Value override takes the run's and says so in a header; refuse answers with an error. Value allow takes the client's, whose log-probs the trainer must then reproduce. Default override.
	ClientSampling string `json:"client_sampling,omitempty" allowed:"override refuse allow"`
	// ToolFormat is the family whose way to write calls of tools and reasoning the model was trained on (docs/calls.md has the grammar of each). Value auto takes the one that the chat template and the type in model.path tell, else hermes; none tells neither calls nor reasoning from text. Default auto.
	ToolFormat string `json:"tool_format,omitempty" allowed:"auto hermes qwen3_coder llama3 pythonic mistral deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 glm45 kimi_k2 harmony minimax_m2 none"`
	// Template is the URL of a server that renders chats into tokens (vLLM's /tokenize), where the engines cannot. Default the first engine that can.
	Template string `json:"template,omitempty"`
	// WaitS is how long a request may wait for its rollout's slot, in seconds, before it is told to come again. Default 600.
	WaitS float64 `json:"wait_s,omitempty" above:"0" max:"86400"`
	// RawIO makes the short reads and writes of token events by system calls that Go's runtime is not told of. An event costs 11 to 29 µs less of a core (docs/performance.md). It has an effect on Linux alone. Default false.
	RawIO bool `json:"raw_io,omitempty"`
}

// Watchdog says when a control plane complains that nothing makes progress.
type Watchdog struct {
	// AfterS is how long nothing may progress before what is missing is named, in seconds. Default 60.
	AfterS float64 `json:"after_s" above:"0" max:"86400"`
	// Action is none, or stop: after ten times after_s the control plane stops with the diagnosis, for a supervisor to act on. Default none.
	Action string `json:"action" allowed:"none stop"`
}

// NATS is where a control plane keeps log, payloads and, if asked to, weights.
type NATS struct {
	// URL of a cluster, such as nats://host:4222,nats://other:4222, or where cells reach the server of store.nats.listen. Default: a server inside the process, at store.nats.listen if that is said.
	URL string `json:"url,omitempty"`
	// Listen is HOST:PORT at which the server inside the process takes in the run's cells, over TLS. Each enters by the file nats.pem in its directory. Default: it opens no port.
	Listen string `json:"listen,omitempty"`
	// Credentials is a .creds file.
	Credentials string `json:"credentials,omitempty"`
	// TLSCA, TLSCert and TLSKey are PEM files for the connection to the cluster.
	TLSCA string `json:"tls_ca,omitempty"`
	// TLSCert is the client's certificate.
	TLSCert string `json:"tls_cert,omitempty"`
	// TLSKey is the private key of tls_cert.
	TLSKey string `json:"tls_key,omitempty"`
	// Replicas of every stream: 1 in the process, 3 or 5 on a cluster that is to survive a node. Default 1.
	Replicas int `json:"replicas" min:"1" max:"5"`
	// LogBytesMax bounds the event log; events that a snapshot covers are removed before. Default 1 GiB.
	LogBytesMax int `json:"log_bytes_max" min:"1048576" max:"1125899906842624"`
	// PayloadBytesMax bounds the payloads of live groups. At the bound rollouts wait. Default 8 GiB.
	PayloadBytesMax int `json:"payload_bytes_max" min:"1048576" max:"1125899906842624"`
	// Objects puts every version that engines are to load into the run's object store as well, for receivers that take it from there. Default false.
	Objects bool `json:"objects"`
	// WriterS is how long the writer's lease lasts without being renewed, in seconds: a standby takes over after it. Default 5.
	WriterS float64 `json:"writer_s" min:"0.5" max:"3600"`
}

// Inside reports whether the server is in the control plane's process.
func (n NATS) Inside() bool { return n.URL == "" || n.Listen != "" }

// everyHost reports whether an address HOST:PORT to listen on is of all of a machine's, and so none to connect to.
func everyHost(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// Public returns the document without what must not be written down: the user and
// password in the URLs of store.nats.url. Everything that a run began with is in it.
func (c Config) Public() Config {
	servers := strings.Split(c.Store.NATS.URL, ",")
	for i, server := range servers {
		if scheme, rest, ok := strings.Cut(server, "://"); ok {
			if at := strings.LastIndex(rest, "@"); at >= 0 {
				servers[i] = scheme + "://" + rest[at+1:]
			}
		} else if at := strings.LastIndex(server, "@"); at >= 0 {
			servers[i] = server[at+1:]
		}
	}
	c.Store.NATS.URL = strings.Join(servers, ",")
	return c
}

// Shown is the document as other people may see it: Public, without the arguments of the program of sinks.command,
// which may hold its key.
func (c Config) Shown() Config {
	c = c.Public()
	c.Sinks.Command = slices.Clone(c.Sinks.Command)
	for i := 1; i < len(c.Sinks.Command); i++ {
		c.Sinks.Command[i] = "REDACTED"
	}
	return c
}

// serverDefaults fills in what a control plane is told.
func (c *Config) serverDefaults() {
	s, n := &c.Server, &c.Store.NATS
	orWord(&s.Listen, "127.0.0.1:7070")
	orNumber(&s.LeaseS, 60, c.given("server.lease_s"))
	orNumber(&s.ClaimS, 60, c.given("server.claim_s"))
	orNumber(&s.DrainS, 30, c.given("server.drain_s"))
	orCount(&s.BodyBytesMax, 256<<20, c.given("server.body_bytes_max"))
	orCount(&s.WeightsBytesMax, 64<<30, c.given("server.weights_bytes_max"))
	orNumber(&c.Watchdog.AfterS, 60, c.given("watchdog.after_s"))
	orWord(&c.Watchdog.Action, "none")
	orCount(&n.Replicas, 1, c.given("store.nats.replicas"))
	orCount(&n.LogBytesMax, 1<<30, c.given("store.nats.log_bytes_max"))
	orCount(&n.PayloadBytesMax, 8<<30, c.given("store.nats.payload_bytes_max"))
	orNumber(&n.WriterS, 5, c.given("store.nats.writer_s"))
	if n.Listen != "" && !everyHost(n.Listen) {
		orWord(&n.URL, "nats://"+n.Listen)
	}
	orWord(&c.Store.Trace, "full")
}

// server checks the relations between the keys of a control plane.
func (v *validator) server() {
	s, n := &v.config.Server, &v.config.Store.NATS
	if (s.TLSCert == "") != (s.TLSKey == "") {
		v.fail("server.tls_cert", s.TLSCert, "stands without its other half", "both server.tls_cert and server.tls_key, or neither")
	}
	if (n.TLSCert == "") != (n.TLSKey == "") {
		v.fail("store.nats.tls_cert", n.TLSCert, "stands without its other half", "both store.nats.tls_cert and store.nats.tls_key, or neither")
	}
	for address := range strings.SplitSeq(n.URL, ",") { // which may have a password
		if scheme, _, said := strings.Cut(strings.TrimSpace(address), "://"); said && !slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme) {
			v.fail("store.nats.url", scheme+"://…", "is no address of a NATS server", "nats://HOST:4222, several with commas between them; tls, ws and wss are known too")
		}
	}
	if n.Inside() && n.Replicas > 1 {
		v.fail("store.nats.replicas", n.Replicas, "is more than the one server inside the process", "1, or store.nats.url of a cluster")
	}
	if n.Replicas%2 == 0 {
		v.fail("store.nats.replicas", n.Replicas, "is even, which survives no more than one less", "1, 3 or 5")
	}
	if n.Listen != "" {
		v.listens()
	}
}

// listens checks what is said of a server inside the process that takes cells in.
func (v *validator) listens() {
	const key = "store.nats.listen"
	n := &v.config.Store.NATS
	_, port, err := net.SplitHostPort(n.Listen)
	if number, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || number == 0 {
		v.fail(key, n.Listen, "is no address", "HOST:PORT, such as 10.0.0.5:4222 or 0.0.0.0:4222")
		return
	}
	if len(v.config.Cells()) == 0 {
		v.fail(key, n.Listen, "takes in cells alone, and no engine is of one", "leave it out, or say engines.*.cell")
	}
	if n.URL == "" {
		v.fail("store.nats.url", n.URL, "is missing: "+n.Listen+" is every address of a machine, and cells need one", "nats://HOST:"+port+", where cells reach the control plane")
	}
	const why, instead = "at the server of " + key + ", which has its own", "leave it out"
	v.idle("store.nats.credentials", n.Credentials != "", why, instead)
	v.idle("store.nats.tls_ca", n.TLSCA != "", why, instead)
	v.idle("store.nats.tls_cert", n.TLSCert != "", why, instead)
}
