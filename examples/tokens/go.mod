module github.com/holdfast-go/holdfast/examples/tokens

go 1.26.0

replace (
	github.com/holdfast-go/holdfast => ../..
	github.com/holdfast-go/holdfast/tokens => ../../tokens
)
