"""The log of a GPU: element names and their order as drivers of branch 575 and 580 print them.

A line `<element> a=1 b=2` is short for an element with the elements a and b in it. Indentation is added later.
"""

GPU = """
<gpu id="{id}">
<product_name>{name}</product_name>
<product_brand>{brand}</product_brand>
<product_architecture>{architecture}</product_architecture>
<display_mode>{deprecated}</display_mode>
<display_attached>No</display_attached>
<display_active>Disabled</display_active>
<persistence_mode>{persistence}</persistence_mode>
<addressing_mode>HMM</addressing_mode>
<mig_mode> current_mig=N/A pending_mig=N/A
<mig_devices>None</mig_devices>
<accounting_mode>Disabled</accounting_mode>
<accounting_mode_buffer_size>4000</accounting_mode_buffer_size>
<driver_model> current_dm=N/A pending_dm=N/A
<serial>N/A</serial>
<uuid>{uuid}</uuid>
<minor_number>{minor}</minor_number>
<vbios_version>{vbios}</vbios_version>
<multigpu_board>No</multigpu_board>
<board_id>{board}</board_id>
<board_part_number>N/A</board_part_number>
<inforom_version> img_version=G002.0000.00.03 oem_object=2.0 ecc_object=6.16 pwr_object=N/A
<gpu_operation_mode> current_gom=N/A pending_gom=N/A
<c2c_mode>N/A</c2c_mode>
<gpu_virtualization_mode> virtualization_mode=None host_vgpu_mode=N/A vgpu_heterogeneous_mode=N/A
<gpu_reset_status> reset_required={deprecated} drain_and_reset_recommended={deprecated}
<gpu_recovery_action>{recovery}</gpu_recovery_action>
<gsp_firmware_version>{driver}</gsp_firmware_version>
<pci>
<pci_bus>{bus}</pci_bus>
<pci_device>{slot}</pci_device>
<pci_domain>{domain}</pci_domain>
<pci_base_class>3</pci_base_class>
<pci_sub_class>0</pci_sub_class>
<pci_device_id>{device}</pci_device_id>
<pci_bus_id>{id}</pci_bus_id>
<pci_sub_system_id>{subsystem}</pci_sub_system_id>
<pci_gpu_link_info>
<pcie_gen> max_link_gen=4 current_link_gen=1 device_current_link_gen=1 max_device_link_gen=4 max_host_link_gen=4
<link_widths> max_link_width=16x current_link_width=16x
</pci_gpu_link_info>
<pci_bridge_chip> bridge_chip_type=N/A bridge_chip_fw=N/A
<replay_counter>0</replay_counter>
<replay_rollover_counter>0</replay_rollover_counter>
<tx_util>0 KB/s</tx_util>
<rx_util>0 KB/s</rx_util>
<atomic_caps_outbound>N/A</atomic_caps_outbound>
<atomic_caps_inbound>N/A</atomic_caps_inbound>
</pci>
<fan_speed>{fan}</fan_speed>
<performance_state>{perf}</performance_state>
<clocks_event_reasons>
<clocks_event_reason_gpu_idle>{idle}</clocks_event_reason_gpu_idle>
<clocks_event_reason_applications_clocks_setting>Not Active</clocks_event_reason_applications_clocks_setting>
<clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
<clocks_event_reason_sync_boost>Not Active</clocks_event_reason_sync_boost>
<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
<clocks_event_reason_display_clocks_setting>Not Active</clocks_event_reason_display_clocks_setting>
</clocks_event_reasons>
<sparse_operation_mode>N/A</sparse_operation_mode>
<fb_memory_usage> total={total} reserved={reserved} used={used} free={free}
<bar1_memory_usage> total={total} used=1 MiB free={total}
<cc_protected_memory_usage> total=0 MiB used=0 MiB free=0 MiB
<compute_mode>Default</compute_mode>
<utilization> gpu_util={util} memory_util={memory_util} encoder_util=0 % decoder_util=0 % jpeg_util=0 % ofa_util=0 %
<encoder_stats> session_count=0 average_fps=0 average_latency=0
<fbc_stats> session_count=0 average_fps=0 average_latency=0
<ecc_mode> current_ecc={ecc} pending_ecc={ecc}
<ecc_errors>
<volatile> sram_correctable={ecc_none} sram_uncorrectable={ecc_none} dram_correctable={ecc_none} dram_uncorrectable={ecc_count}
<aggregate> sram_correctable={ecc_none} sram_uncorrectable={ecc_none} dram_correctable={ecc_none} dram_uncorrectable={ecc_count}
</ecc_errors>
<retired_pages>
<multiple_single_bit_retirement> retired_count=N/A retired_pagelist=N/A
<double_bit_retirement> retired_count=N/A retired_pagelist=N/A
<pending_blacklist>N/A</pending_blacklist>
<pending_retirement>N/A</pending_retirement>
</retired_pages>
<remapped_rows>
<remapped_row_corr>0</remapped_row_corr>
<remapped_row_unc>{remapped}</remapped_row_unc>
<remapped_row_pending>{remap_pending}</remapped_row_pending>
<remapped_row_failure>No</remapped_row_failure>
<row_remapper_histogram>
<row_remapper_histogram_max>192 bank(s)</row_remapper_histogram_max>
<row_remapper_histogram_high>0 bank(s)</row_remapper_histogram_high>
<row_remapper_histogram_partial>0 bank(s)</row_remapper_histogram_partial>
<row_remapper_histogram_low>0 bank(s)</row_remapper_histogram_low>
<row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none>
</row_remapper_histogram>
</remapped_rows>
<temperature>
<gpu_temp>{temp}</gpu_temp>
<gpu_temp_tlimit>{temp_left}</gpu_temp_tlimit>
<gpu_temp_max_tlimit_threshold>-7 C</gpu_temp_max_tlimit_threshold>
<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>
<gpu_temp_max_gpu_tlimit_threshold>0 C</gpu_temp_max_gpu_tlimit_threshold>
<gpu_target_temperature>84 C</gpu_target_temperature>
<memory_temp>N/A</memory_temp>
<gpu_temp_max_mem_tlimit_threshold>N/A</gpu_temp_max_mem_tlimit_threshold>
</temperature>
<gpu_power_readings>
<power_state>{perf}</power_state>
<average_power_draw>{power}</average_power_draw>
<instant_power_draw>{power}</instant_power_draw>
<current_power_limit>{power_limit}</current_power_limit>
<requested_power_limit>{power_limit}</requested_power_limit>
<default_power_limit>{power_limit}</default_power_limit>
<min_power_limit>150.00 W</min_power_limit>
<max_power_limit>600.00 W</max_power_limit>
</gpu_power_readings>
<clocks> graphics_clock={clock} sm_clock={clock} mem_clock=405 MHz video_clock=1185 MHz
<max_clocks> graphics_clock=3105 MHz sm_clock=3105 MHz mem_clock=10501 MHz video_clock=2415 MHz
<processes>{processes}
</gpu>
"""
PROCESS = """
<process_info>
<gpu_instance_id>N/A</gpu_instance_id>
<compute_instance_id>N/A</compute_instance_id>
<pid>{}</pid>
<type>C</type>
<process_name>{}</process_name>
<used_memory>{} MiB</used_memory>
</process_info>"""
