// Example design that computes eight sparse f16 products per cycle and adds them to an f32. The design instantiates the
// top-level module `row` (a dot-product unit with its metadata decoder) of preset `ampere`, with a constant control
// word. `sptc ports --preset ampere --top row` prints the fields of a step.
module mine (
    input  wire         clk,
    input  wire         rst,
    input  wire [127:0] a,         // stored elements of A
    input  wire [255:0] b,
    input  wire [ 31:0] metadata,
    input  wire [ 31:0] c,
    output wire [ 31:0] d,         // result of the step that was accepted five cycles ago
    output wire         undefined  // 1: the same step has a nibble that the plain metadata rule does not define
);
  wire [16:0] control = {
    2'd0,  // format of block scales: none
    3'd0,  // metadata rule: plain
    1'b1,  // sparse: metadata selects elements of B
    1'b0,  // saturate: ignored for floats
    2'd0,  // result format: f32
    4'd0,  // format of B: f16
    4'd0   // format of A: f16
  };
  wire [40:0] result;

  sptc_ampere_row row (
      .clk(clk),
      .rst(rst),
      .step({1'b0, control, 64'd0, c, metadata, b, a}),  // overflow 0, block scales 0
      .enable(1'b1),
      .result(result)
  );
  assign d = result[31:0];
  assign undefined = |result[40:33];

  wire unused = result[32];  // bit 32 is the overflow flag, which only integer formats set
endmodule
