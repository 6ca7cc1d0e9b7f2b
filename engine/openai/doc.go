// Package openai is the dialect of servers that answer OpenAI's completions and nothing else. They
// return text, without token ids, and no weights can be changed. Nothing can be trained on that,
// and Capabilities say so. Such a server is good for an evaluation.
//
// A request names its prompt by token ids, as the rest of the loop does. OpenAI's form allows that
// for /v1/completions, and Probe tries whether the server does. One that has chats alone can be
// looked at and not sampled from.
package openai
