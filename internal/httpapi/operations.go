package httpapi

import (
	"errors"
	"net/http"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
)

// operations implements the contract. Each method is the one shape: read, ask inventory, encode.
type operations struct{ *API }

var _ openapi.ServerInterface = operations{}

// badParameter answers for what the generated wrapper could not take from the path, the query or the headers.
func badParameter(w http.ResponseWriter, r *http.Request, err error) {
	var (
		missing  *openapi.RequiredHeaderError
		repeated *openapi.TooManyValuesForParamError
		format   *openapi.InvalidParamFormatError
		required *openapi.RequiredParamError
	)
	switch {
	case errors.As(err, &missing) && missing.ParamName == keyHeader:
		err = errKeyMissing
	case errors.As(err, &repeated):
		err = duplicateHeader(repeated.ParamName)
	case errors.As(err, &format) && format.ParamName == keyHeader && r.Header.Get(keyHeader) == "":
		err = errKeyMissing
	case errors.As(err, &format):
		err = invalidParameter(format.ParamName, "is not what the contract allows")
	case errors.As(err, &required):
		err = invalidParameter(required.ParamName, "is required")
	}
	callOf(w).fail(err)
}
