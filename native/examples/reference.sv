// Example of libsptc as a reference model in SystemVerilog: one mma.sp of a warp, one mma.sp with undefined metadata,
// which libsptc refuses, and one wgmma.sp of a warpgroup.
`include "sptc_dpi.svh"

module reference;
    chandle instruction;
    int unsigned a[32*4], b[32*4], c[32*4], d[32*4], e[32], none[1];
    int unsigned group_a[128*4], group_d[128*8], group_e[128];
    byte unsigned smem[1024];
    int ids[4];

    initial begin
        instruction = sptc_dpi_open("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90");
        if (sptc_dpi_error(instruction) != "") $fatal(1, "%s", sptc_dpi_error(instruction));
        foreach (a[i]) a[i] = 32'h3C003C00;  // two elements of 1.0 per register
        foreach (b[i]) b[i] = 32'h40004000;  // 2.0
        foreach (e[i]) e[i] = 32'h44444444;  // metadata: elements 0 and 1 of every four are kept
        if (sptc_dpi_mma(instruction, a, b, c, e, 0, 0, none, none, ids, d) != 0)
            $fatal(1, "%s", sptc_dpi_error(instruction));
        foreach (d[i]) if (d[i] != 32'h42000000) $fatal(1, "d[%0d] is %h", i, d[i]);
        e[5] = 0;
        if (sptc_dpi_mma(instruction, a, b, c, e, 0, 0, none, none, ids, d) == 0) $fatal(1, "undefined metadata is taken");
        $display("%s", sptc_dpi_error(instruction));
        sptc_dpi_close(instruction);

        instruction = sptc_dpi_open("wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16", "sm_90");
        foreach (group_a[i]) group_a[i] = 32'h3C003C00;
        foreach (group_d[i]) group_d[i] = 32'h3F800000;  // 1.0
        foreach (group_e[i]) group_e[i] = 32'h44444444;
        foreach (smem[i]) smem[i] = i % 2 != 0 ? 8'h40 : 8'h00;
        // descriptor of B: address 0, leading offset 256 bytes, stride offset 128 bytes, no swizzle
        if (sptc_dpi_wgmma(instruction, 1, group_a, 0, 64'(128 / 16) << 32 | 64'(256 / 16) << 16, group_e, 0, 0,
                           smem, 1, group_d) != 0)
            $fatal(1, "%s", sptc_dpi_error(instruction));
        foreach (group_d[i])
            if (group_d[i] != 32'h42040000) $fatal(1, "group_d[%0d] is %h", i, group_d[i]);
        sptc_dpi_close(instruction);
        $display("every element is 32 and 33");
        $finish;
    end
endmodule
