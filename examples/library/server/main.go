// Command server is an MCP server with the shelf of a small library. It speaks on
// its standard streams and ends with its input.
package main

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Book is a book of the library.
type Book struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Author string `json:"author"`
}

var shelf = []Book{
	{"b-1", "Dune", "Frank Herbert"},
	{"b-2", "The Left Hand of Darkness", "Ursula K. Le Guin"},
	{"b-3", "Fahrenheit 451", "Ray Bradbury"},
}

// Title asks for a book.
type Title struct {
	Title string `json:"title" jsonschema:"of the book, or a part of it"`
}

// Wanted names a book of the shelf.
type Wanted struct {
	ID string `json:"id"`
}

// Loan is how long a book may stay away.
type Loan struct {
	ID   string `json:"id"`
	Days int    `json:"days"`
}

func find(_ context.Context, _ *mcp.CallToolRequest, in Title) (*mcp.CallToolResult, Book, error) {
	for _, b := range shelf {
		if strings.Contains(strings.ToLower(b.Title), strings.ToLower(strings.TrimSpace(in.Title))) {
			return nil, b, nil
		}
	}
	return nil, Book{}, fmt.Errorf("no book is called %q", in.Title)
}

func lend(_ context.Context, _ *mcp.CallToolRequest, in Wanted) (*mcp.CallToolResult, Loan, error) {
	for _, b := range shelf {
		if b.ID == in.ID {
			return nil, Loan{b.ID, 28}, nil
		}
	}
	return nil, Loan{}, fmt.Errorf("no book has the id %q", in.ID)
}

func burn(_ context.Context, _ *mcp.CallToolRequest, in Title) (*mcp.CallToolResult, Book, error) {
	log.Fatalf("%s burns, and the library with it", in.Title)
	return nil, Book{}, nil
}

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "shelf", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "find_book", Description: "Finds a book by a part of its title."}, find)
	mcp.AddTool(s, &mcp.Tool{Name: "lend_book", Description: "Lends a book, which leaves the library."}, lend)
	mcp.AddTool(s, &mcp.Tool{Name: "burn_book", Description: "Burns a book."}, burn)
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
