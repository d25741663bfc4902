package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/sandboxd/sandboxd/sdk/abi"
)

// A Request is an HTTP request that the host sends.
type Request struct {
	Method  string // default GET
	URL     string
	Header  map[string]string
	Secrets []UseSecret
	Body    []byte
	JSON    any // instead of Body: what the body says, with Content-Type application/json unless Header has one
}

// UseSecret asks the host to put a secret into a request header. The guest never
// sees the value; an echo of it in the answer arrives as "[secret NAME]".
type UseSecret = abi.UseSecret

// A Response is the answer to a [Request]. Any status is a response, not an error.
type Response struct {
	Status int
	Header map[string]string // names in lower case, values joined with ", "
	Body   []byte
}

// JSON decodes the body into a pointer. Members that the type does not have are
// ignored.
func (r *Response) JSON(into any) error {
	if err := unmarshal(r.Body, into); err != nil {
		return fmt.Errorf("http: body: %w", err)
	}
	return nil
}

// HTTP sends a request. The call's grants must cover it, and every redirect that
// it meets.
func (c *Call) HTTP(r Request) (*Response, error) {
	head := abi.HTTPRequest{Method: r.Method, URL: r.URL, Headers: r.Header, Secrets: r.Secrets}
	body := r.Body
	if r.JSON != nil {
		if body != nil {
			return nil, errors.New("http: a request has Body or JSON, not both")
		}
		var err error
		if body, err = abi.Marshal(r.JSON); err != nil {
			return nil, fmt.Errorf("http: body: %w", err)
		}
		if !hasHeader(r.Header, "Content-Type") {
			head.Headers = maps.Clone(r.Header)
			if head.Headers == nil {
				head.Headers = map[string]string{}
			}
			head.Headers["Content-Type"] = "application/json"
		}
	}
	reply, err := c.ask("http", head, body)
	if err != nil {
		return nil, err
	}
	if len(reply) < 4 || uint64(binary.LittleEndian.Uint32(reply)) > uint64(len(reply)-4) {
		return nil, fmt.Errorf("http: reply of %d bytes has no head", len(reply))
	}
	end := 4 + int(binary.LittleEndian.Uint32(reply))
	var answer abi.HTTPReply
	if err := json.Unmarshal(reply[4:end], &answer); err != nil {
		return nil, fmt.Errorf("http: reply: %w", err)
	}
	return &Response{Status: answer.Status, Header: answer.Headers, Body: reply[end:]}, nil
}

func hasHeader(header map[string]string, name string) bool {
	for n := range header {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}
