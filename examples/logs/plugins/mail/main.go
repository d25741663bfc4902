// Command mail is a plugin with a tool that sends a mail, to one place only.
package main

import (
	"fmt"

	guest "github.com/sandboxd/sandboxd/sdk/guest/go"
)

func init() {
	guest.Serve(guest.Plugin{
		Name: "mail", Version: "1.0.0",
		Requests: []string{"http POST mail.ops.example/v1/send"},
		Exports: []guest.Export{guest.Tool[Mail, Sent]{
			Name: "send_mail", Description: "Sends a mail to the people on duty.",
			Effects: guest.Once, Handle: send,
		}},
	})
}

func main() {}

// Mail is what to send.
type Mail struct {
	Subject string `json:"subject" max:"200"`
	Text    string `json:"text" max:"4000"`
}

// Sent says that it was.
type Sent struct {
	ID string `json:"id"`
}

func send(c *guest.Call, in Mail) (Sent, error) {
	res, err := c.HTTP(guest.Request{
		Method: "POST", URL: "https://mail.ops.example/v1/send", JSON: in,
		Header: map[string]string{"Idempotency-Key": c.ID()},
	})
	if err != nil {
		return Sent{}, err
	}
	if res.Status != 202 {
		return Sent{}, fmt.Errorf("the mail service answered with status %d", res.Status)
	}
	var s Sent
	err = res.JSON(&s)
	return s, err
}
