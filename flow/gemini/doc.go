// Package gemini is a [flow.Model] over the Gemini API, and over Vertex AI with
// an API key.
//
// A whole answer becomes one response: the first candidate's content if it has
// parts or finished with STOP; otherwise the candidate's finish reason, or the
// prompt's block reason, as the response's error code (genai keeps the finish
// message of Vertex AI only). A streamed answer comes out chunk by chunk as
// partial responses, and then whole, put together by an [Aggregator].
//
// # Network
//
// Requests go to the configured address and nowhere else: environment variables
// that name proxies or other addresses have no effect, and redirects are not
// followed. A failed request is not tried again; an answer that the service hands
// out in instalments is, by genai, asked for to its end unless the request's
// config turns AutomaticContinuation off. There is no timeout of its own: the
// caller's context bounds a request. A reply of more than 64 MiB is an error. A
// [flow.Request] cannot carry HTTP options, so that nothing that edits requests
// can send the key elsewhere. When a stream fails, genai writes a line to the
// standard logger.
//
// # Numbers
//
// The arguments of calls and the results of tools keep the text of their numbers
// ([encoding/json.Number]), in requests and in replies, also if arguments are
// streamed by path: the pieces have float64, as genai's types do, and the whole has
// the text. A reply with a number that no float64 comes near, such as 1e400, is an
// error.
package gemini
