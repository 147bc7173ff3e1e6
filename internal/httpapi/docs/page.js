// Shows the contract that this very service serves. Nothing is asked of any other host.
window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: "openapi.yaml",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null,
    defaultModelsExpandDepth: 0,
    persistAuthorization: false,
  });
});
