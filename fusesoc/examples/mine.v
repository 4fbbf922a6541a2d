// Example design: computes eight sparse f16 products per cycle and adds them to an f32. It instantiates the top-level
// module `row` (a dot-product unit with its metadata decoder) of preset `ampere`, with a constant control word.
// `sptc ports --preset ampere --top row` prints the fields of a step.
module mine (
    input  wire         clk,
    input  wire         rst,
    input  wire [127:0] a,         // stored elements of A
    input  wire [255:0] b,
    input  wire [ 31:0] metadata,
    input  wire [ 31:0] c,
    output wire [ 31:0] d,         // result of the step that was accepted five cycles ago
    output wire         undefined  // the step has a metadata nibble that the plain rule does not define
);
  wire [16:0] control = {
    2'd0,  // scale: none
    3'd0,  // rule: plain
    1'b1,  // sparse
    1'b0,  // saturate
    2'd0,  // result: f32
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
